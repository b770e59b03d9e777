"""What the stores in relational databases share: everything but the database itself.

    schema        the tables
    statements    the SQL of one statement in each dialect, and the driver that executes it
    writing       how conversations change; `queries` how they are found and read
    reading       reads conversations and verifies them
    listing       lists of conversations
    repairs       what can be wrong with the tables, and how it is put right
    pending       what a task waits for while a thread works for it
    texts         whose texts may be found again, and which a log holds

Each function takes a driver (`statements.Driver`) and works within the transaction of its caller.
"""

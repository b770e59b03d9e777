"""What the stores in relational databases share: everything but the database itself.

    schema        the tables
    statements    the SQL of one statement in each dialect, and the driver that executes it
    writing       how conversations change; `queries` how they are found and read
    reading       reads conversations and verifies them
    listing       puts rows into the values of the ports
    texts         whose texts may be found again, and which a log holds; `vectors` compares them by meaning

Each function takes a driver (`statements.Driver`) and works within the transaction of its caller.
"""

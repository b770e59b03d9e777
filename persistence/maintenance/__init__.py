"""What is done to stored conversations besides going on with them: replay, fork, export, import, copy, examination.

It works with every store, through the port. What only one kind of store can do belongs to that store.
"""

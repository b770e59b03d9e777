"""How the arguments of a call are described to a model, checked, and made the arguments of a function.

They follow from the types of the function (`typed_arguments.py`), or from a JSON schema that the application gives
(`schema_arguments.py`). What a function returns is not known here.
"""

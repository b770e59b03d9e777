"""What an onlooker writes down: one book for each thing that the laws hold a conversation to.

A book is told every step, in order. It looks at what came in and at what was wanted, and at no state: so whatever a
state says of itself can be compared with the books.
"""

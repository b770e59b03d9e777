"""What the conversations of an engine may choose: its models, its tools, and rules that it can carry out."""

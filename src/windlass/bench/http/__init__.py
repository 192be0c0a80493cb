"""How fast is the server, beside a bare one that does the same commits and nothing else?"""

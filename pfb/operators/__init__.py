"""Linear operators and regularisers: a domain, a precision, `dot` and `hdot`."""

"""Threads and time: deadlines, the pending table, the one blocking path a call takes. Knows transports only by
`transports.base`.
"""

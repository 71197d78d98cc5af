"""Response times of queues, in the units of their service times; infinite once a queue is saturated."""

from __future__ import annotations

import math


def processor_sharing_response(service: float, utilisation: float) -> float:
    """Return the mean response time where all that wait share one processor: service / (1 - utilisation).

    Source: Kleinrock (1976), Queueing Systems II, section 4.4; it holds for any distribution of service times.
    """
    return service / (1 - utilisation) if utilisation < 1 else math.inf


def groups_per_second(arrivals: float, seconds: float) -> float:
    """Return the groups per second of a server that takes all that waits as soon as it is free.

    It is busy for `seconds` with any group; then it takes what arrived meanwhile or, if nothing did, waits for the next
    arrival. Source: Bailey (1954), On Queueing Processes with Bulk Service, with unlimited groups; Poisson arrivals.
    """
    return 1 / (seconds + math.exp(-arrivals * seconds) / arrivals) if arrivals else 0.0


def erlang_c(servers: int, offered: float) -> float:
    """Return the probability that an arrival waits, with `offered` busy servers on average; 1 when saturated.

    Source: Erlang (1917); computed from Erlang's B formula, whose recursion does not overflow.
    """
    if offered >= servers:
        return 1.0
    blocked = 1.0
    for n in range(1, servers + 1):
        blocked = offered * blocked / (n + offered * blocked)
    return blocked / (1 - offered / servers * (1 - blocked))


def multiserver_response(service: float, *, servers: int, offered: float) -> float:
    """Return the mean response time of the queue M/M/c: the service, and the wait of Erlang's C formula.

    Source: Kleinrock (1975), Queueing Systems I, section 3.5.
    """
    if offered >= servers:
        return math.inf
    return service * (1 + erlang_c(servers, offered) / (servers - offered))

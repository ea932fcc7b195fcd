"""Role: what this broker is at present among the brokers of its name.

    without a group      what brokerRole and brokerId say, from the start to the end
    member of a group    a slave with its number + 1, until it is elected: then a SYNC_MASTER with id 0, until it is not

Only the roles of a group (group/roles.py) call `take`. Whatever depends on the role at run time reads it here. The
settings records keep what was configured; listings of them show the role (Configuration.listed_records).
"""

from __future__ import annotations

from triomq.store.config import BrokerRole


class Role:
    """See the module's docstring. Only the event loop touches it."""

    def __init__(self, broker_role: BrokerRole, broker_id: int) -> None:
        self.take(broker_role, broker_id)

    def take(self, broker_role: BrokerRole, broker_id: int) -> None:
        """Be this from now on."""
        self.broker_role = broker_role
        self.broker_id = broker_id
        self.is_slave = broker_role is BrokerRole.SLAVE

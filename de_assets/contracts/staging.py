"""What the replicas in staging promise: derived from their sources' contracts, so that a tag is set in one place only."""

from de_assets.contracts.users import Users
from de_assets.contracts.visits import Visits
from de_resources.replication.allow_list import replica_model

StagingUsers = replica_model(Users, "staging.users", __name__)
StagingVisits = replica_model(Visits, "staging.visits", __name__)

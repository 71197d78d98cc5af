"""Acceptance policies and decisions: the public names of `trmon_client.core.policies`."""

from trmon_client.core.policies.criteria import TOKEN_RULES as TOKEN_RULES
from trmon_client.core.policies.criteria import TURN_STATISTICS as TURN_STATISTICS
from trmon_client.core.policies.criteria import Criterion as Criterion
from trmon_client.core.policies.criteria import PairChoice as PairChoice
from trmon_client.core.policies.criteria import TokenRule as TokenRule
from trmon_client.core.policies.criteria import TurnCriterion as TurnCriterion
from trmon_client.core.policies.criteria import Where as Where
from trmon_client.core.policies.decision import SEMANTICS_VERSION as SEMANTICS_VERSION
from trmon_client.core.policies.decision import Decision as Decision
from trmon_client.core.policies.decision import TurnDecision as TurnDecision
from trmon_client.core.policies.decision import decide as decide
from trmon_client.core.policies.policy import Policy as Policy
from trmon_client.core.policies.policy import preset as preset
from trmon_client.core.policies.policy import preset_names as preset_names
from trmon_client.core.policies.presets import CERTIFICATE_MARGIN as CERTIFICATE_MARGIN
from trmon_client.core.policies.presets import PRESETS as PRESETS
from trmon_client.core.policies.presets import TOKEN_POLICIES as TOKEN_POLICIES
from trmon_client.core.policies.sequence_statistics import STATISTICS as STATISTICS
from trmon_client.core.policies.sequence_statistics import PolicyError as PolicyError

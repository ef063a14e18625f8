"""What is wrong with a job: one rule a finding, and the judge that applies them to the samples of all workers.

Pure: samples in, findings out. docs/findings.md explains each finding.
"""

from tpumon.findings.base import Account, Member, Rule, Seen
from tpumon.findings.judge import GRADES, Judge, explained, group_of
from tpumon.findings.straggler import Straggler
from tpumon.findings.table import RULES
from tpumon.findings.thresholds import Thresholds

__all__ = [
    "GRADES",
    "RULES",
    "Account",
    "Judge",
    "Member",
    "Rule",
    "Seen",
    "Straggler",
    "Thresholds",
    "explained",
    "group_of",
]

"""Findings: one rule each, and the judge that applies the rules to the samples of all workers.

Pure: samples in, findings out. docs/findings.md explains each finding.
"""

from tpumon.analysis.findings.finding_state import SliceKey
from tpumon.analysis.findings.judge import Judge, hidden_findings, slice_key_of
from tpumon.analysis.findings.rule import Member, Observation, Rule
from tpumon.analysis.findings.rule_table import RULES
from tpumon.analysis.findings.rules.straggler import Straggler
from tpumon.analysis.findings.thresholds import Thresholds

__all__ = [
    "RULES",
    "Judge",
    "Member",
    "Observation",
    "Rule",
    "SliceKey",
    "Straggler",
    "Thresholds",
    "hidden_findings",
    "slice_key_of",
]

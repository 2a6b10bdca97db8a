"""Histories that can always go on: what a provider would refuse in one, and how it is mended."""

from penstock.history.check import check
from penstock.history.problem import Problem
from penstock.history.repair import repair
from penstock.history.repaired import Repaired

__all__ = ["Problem", "Repaired", "check", "repair"]

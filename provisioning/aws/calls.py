"""Every call that the driver can make, and the right it needs: the one source of policy texts.

A name is `SERVICE:Operation` as the provider's own clients have it. A dry run is a row of its own,
since it changes nothing. Rows with `call` false are rights that other calls need.
"""

from typing import Final

from provisioning import contract

_F = contract.Feature
_CALL = contract.ApiCall

DRY_RUN: Final = " (dry run)"


def _reading(name: str, feature: contract.Feature) -> contract.ApiCall:
    return _CALL(name=name, feature=feature, right=name)


def _changing(name: str, feature: contract.Feature, *, costs: bool = False) -> contract.ApiCall:
    return _CALL(name=name, feature=feature, right=name, changes=True, costs=costs)


def _rehearsal(name: str) -> contract.ApiCall:
    return _CALL(name=name + DRY_RUN, feature=_F.CHECK, right=name)


# --- who we are ---------------------------------------------------------------------------------
CALLER = _CALL(name="sts:GetCallerIdentity", feature=_F.CHECK)
ASSUME = _CALL(name="sts:AssumeRole", feature=_F.CHECK)
ASSUME_WEB = _CALL(name="sts:AssumeRoleWithWebIdentity", feature=_F.CHECK)
SIMULATE = _reading("iam:SimulatePrincipalPolicy", _F.CHECK)
QUOTA = _CALL(
    name="service-quotas:GetServiceQuota", feature=_F.CHECK, right="servicequotas:GetServiceQuota"
)
DRY_RUN_INSTANCES = _rehearsal("ec2:RunInstances")
DRY_CREATE_GROUP = _rehearsal("ec2:CreateSecurityGroup")
DRY_CREATE_VOLUME = _rehearsal("ec2:CreateVolume")
DRY_ALLOCATE = _rehearsal("ec2:AllocateAddress")

# --- what there is to order ---------------------------------------------------------------------
TYPES = _reading("ec2:DescribeInstanceTypes", _F.CATALOG)
TYPE_OFFERINGS = _reading("ec2:DescribeInstanceTypeOfferings", _F.CATALOG)
IMAGES = _reading("ec2:DescribeImages", _F.CATALOG)

# --- machines -----------------------------------------------------------------------------------
VPCS = _reading("ec2:DescribeVpcs", _F.MACHINES)
SUBNETS = _reading("ec2:DescribeSubnets", _F.MACHINES)
GROUPS = _reading("ec2:DescribeSecurityGroups", _F.MACHINES)
INSTANCES = _reading("ec2:DescribeInstances", _F.MACHINES)
INTERFACES = _reading("ec2:DescribeNetworkInterfaces", _F.MACHINES)
CONSOLE = _reading("ec2:GetConsoleOutput", _F.MACHINES)
VOLUMES = _reading("ec2:DescribeVolumes", _F.MACHINES)
CREATE_GROUP = _changing("ec2:CreateSecurityGroup", _F.MACHINES)
REVOKE = _changing("ec2:RevokeSecurityGroupIngress", _F.MACHINES)
RUN = _changing("ec2:RunInstances", _F.MACHINES, costs=True)
TERMINATE = _changing("ec2:TerminateInstances", _F.MACHINES)
REBOOT = _changing("ec2:RebootInstances", _F.MACHINES)
DELETE_VOLUME = _changing("ec2:DeleteVolume", _F.MACHINES)
DELETE_INTERFACE = _changing("ec2:DeleteNetworkInterface", _F.MACHINES)

# --- a person's way in --------------------------------------------------------------------------
AUTHORIZE = _changing("ec2:AuthorizeSecurityGroupIngress", _F.SSH)
DELETE_GROUP = _changing("ec2:DeleteSecurityGroup", _F.SSH)
KEYS = _reading("ec2:DescribeKeyPairs", _F.SSH)
IMPORT_KEY = _changing("ec2:ImportKeyPair", _F.SSH)
DELETE_KEY = _changing("ec2:DeleteKeyPair", _F.SSH)

# --- what is kept beside machines ---------------------------------------------------------------
CREATE_VOLUME = _changing("ec2:CreateVolume", _F.VOLUMES, costs=True)
ATTACH_VOLUME = _changing("ec2:AttachVolume", _F.VOLUMES)
DETACH_VOLUME = _changing("ec2:DetachVolume", _F.VOLUMES)
SNAPSHOTS = _reading("ec2:DescribeSnapshots", _F.SNAPSHOTS)
CREATE_SNAPSHOT = _changing("ec2:CreateSnapshot", _F.SNAPSHOTS, costs=True)
CREATE_IMAGE = _changing("ec2:CreateImage", _F.SNAPSHOTS, costs=True)
DELETE_SNAPSHOT = _changing("ec2:DeleteSnapshot", _F.SNAPSHOTS)
DEREGISTER = _changing("ec2:DeregisterImage", _F.SNAPSHOTS)
ADDRESSES = _reading("ec2:DescribeAddresses", _F.ADDRESSES)
ALLOCATE = _changing("ec2:AllocateAddress", _F.ADDRESSES, costs=True)
ASSOCIATE = _changing("ec2:AssociateAddress", _F.ADDRESSES)
DISASSOCIATE = _changing("ec2:DisassociateAddress", _F.ADDRESSES)
RELEASE = _changing("ec2:ReleaseAddress", _F.ADDRESSES)

ALL: Final = tuple(value for value in list(vars().values()) if isinstance(value, _CALL))

TAGGING: Final = "ec2:CreateTags"
"""A right without a call of ours: whoever creates something with tags needs it."""
TAGGED_AT_CREATE: Final = (
    RUN,
    CREATE_GROUP,
    IMPORT_KEY,
    CREATE_VOLUME,
    CREATE_SNAPSHOT,
    CREATE_IMAGE,
    ALLOCATE,
)
EXPLAINING: Final = (SIMULATE, QUOTA)
"""Calls that only explain: without their right everything works, and less is told."""

"""What to set up at Google for a connection, made from the table of calls.

One custom role of the project, given to the pool's subject itself, to the service account that it
stands in for, or to the service account whose key was pasted.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from provisioning import contract, credentials
from provisioning.gcp import calls

EVERYTHING: Final = tuple(contract.Feature)
ROLE: Final = "enlistMachines"


def least_privilege(features: Iterable[contract.Feature] = EVERYTHING) -> Mapping[str, Any]:
    """The custom role, in the form of `gcloud iam roles create --file`."""
    return {
        "title": "Enlist machines",
        "description": "Makes and ends machines and what hangs on them.",
        "stage": "GA",
        "includedPermissions": list(calls.rights_of(features)),
    }


def setup_text(facts: Mapping[str, str]) -> str:
    """What to do at Google, as commands to paste. Nothing in it is a secret."""
    project = facts.get("project_id") or "PROJECT"
    permissions = ",".join(least_privilege()["includedPermissions"])
    parts = [
        (
            "1. The service, switched on in a project for these machines alone:\n"
            f"   gcloud services enable compute.googleapis.com --project {project}"
        ),
        (
            "2. A role with these permissions and no others:\n"
            f"   gcloud iam roles create {ROLE} --project {project} --permissions={permissions}"
        ),
    ]
    if facts.get("kind") == credentials.Kind.GCP_FEDERATED:
        parts += _federated(facts, project=project)
    else:
        email = facts.get("client_email") or f"enlist@{project}.iam.gserviceaccount.com"
        parts.append(f"3. {_bind(project, f'serviceAccount:{email}')}")
        parts.append(
            "4. A key lives until it is deleted: make a new one now and then, save the connection "
            "again with it, then: gcloud iam service-accounts keys delete KEY-ID "
            f"--iam-account {email}. A workload identity pool needs none: "
            "save the connection as kind gcp-federated."
        )
    return "\n\n".join(parts)


def _federated(facts: Mapping[str, str], *, project: str) -> list[str]:
    issuer, subject = facts.get("issuer_url", ""), facts.get("subject", "")
    pool, provider = facts.get("pool_id", "POOL"), facts.get("provider_id", "PROVIDER")
    number = facts.get("project_number", "PROJECT-NUMBER")
    if not issuer:
        return [
            (
                "3. A pool needs the address of our own issuer, and it has none yet: "
                "set [cloud] issuer_url, then publish it: enlist cloud issuer export DIR"
            ),
        ]
    here = f"--project {project} --location global"
    who = (
        f"principal://iam.googleapis.com/projects/{number}/locations/global"
        f"/workloadIdentityPools/{pool}/subject/{subject}"
    )
    made = (
        "3. A pool that believes our issuer, and of what it says only this connection:\n"
        f"   gcloud iam workload-identity-pools create {pool} {here}\n"
        f"   gcloud iam workload-identity-pools providers create-oidc {provider} {here} "
        f"--workload-identity-pool {pool} --issuer-uri {issuer} "
        "--attribute-mapping google.subject=assertion.sub "
        f"--attribute-condition \"assertion.sub=='{subject}'\""
    )
    email = facts.get("service_account", "")
    if not email:
        return [made, f"4. {_bind(project, who)}"]
    stand_in = (
        f"4. {_bind(project, f'serviceAccount:{email}')}\n"
        f"   gcloud iam service-accounts add-iam-policy-binding {email} --project {project} "
        f"--role roles/iam.workloadIdentityUser --member '{who}'"
    )
    return [made, stand_in]


def _bind(project: str, member: str) -> str:
    return (
        "The role, given:\n"
        f"   gcloud projects add-iam-policy-binding {project} "
        f"--role projects/{project}/roles/{ROLE} --member '{member}'"
    )

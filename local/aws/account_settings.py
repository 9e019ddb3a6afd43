"""Settings of the account that moto lacks: quotas of Lambda and EventBridge, and the key that EBS encrypts with."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from shared.base.struct import MutableStruct

if TYPE_CHECKING:
    from local.aws.interceptor import RawResponse


class AccountSettings(MutableStruct):
    """The settings; a new account's quota is often 10 concurrent executions."""

    concurrent_executions: int = 1000
    event_rules: int = 300
    event_buses: int = 100
    ebs_default_kms_key: str = "alias/aws/ebs"

    def get_account_settings(self, _: bytes) -> RawResponse:
        """Lambda's GetAccountSettings."""
        limit = {
            "ConcurrentExecutions": self.concurrent_executions,
            "UnreservedConcurrentExecutions": self.concurrent_executions,
        }
        return 200, {}, json.dumps({"AccountLimit": limit}).encode()

    def list_service_quotas(self, _: bytes) -> RawResponse:
        """ListServiceQuotas of EventBridge."""
        quotas = {"Number of rules": self.event_rules, "Event buses": self.event_buses}
        answer = [{"QuotaName": name, "Value": float(value), "Adjustable": True} for name, value in quotas.items()]
        return 200, {}, json.dumps({"Quotas": answer}).encode()

    def get_ebs_default_kms_key_id(self, _: bytes) -> RawResponse:
        """EC2's GetEbsDefaultKmsKeyId."""
        key = f"<kmsKeyId>{self.ebs_default_kms_key}</kmsKeyId>"
        return 200, {}, f"<GetEbsDefaultKmsKeyIdResponse>{key}</GetEbsDefaultKmsKeyIdResponse>".encode()

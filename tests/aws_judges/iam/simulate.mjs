// Judges IAM requests by @cloud-copilot/iam-simulate. Standard input is JSON: the policies of roles by name, and
// requests with the name of their role. Standard output is a list of the same length: for each request the engine's
// result, the error that makes the request impossible by the service authorization reference ("" for none), and the
// condition keys of the request that its action and resource don't have.
import { readFileSync } from 'node:fs'
import { createValidatedPolicy, validateIdentityPolicy } from '@cloud-copilot/iam-policy'
import { runSimulation } from '@cloud-copilot/iam-simulate'

const { account, policies, requests } = JSON.parse(readFileSync(0, 'utf8'))
// each policy is validated once, not for every request
const validated = Object.fromEntries(Object.entries(policies).map(([role, documents]) => [
  role,
  documents.map((policy, index) => ({ name: `${role}-${index}`, policy: createValidatedPolicy(policy, validateIdentityPolicy) }))
]))
const verdicts = []
for (const { role, action, resource, context } of requests) {
  const response = await runSimulation({
    request: {
      principal: `arn:aws:iam::${account}:role/${role}`,
      action,
      resource: { resource, accountId: account },
      contextVariables: context
    },
    identityPolicies: validated[role],
    serviceControlPolicies: [],
    resourceControlPolicies: []
  }, {})
  verdicts.push(response.resultType === 'error'
    ? { result: '', error: JSON.stringify(response.errors), ignored: [] }
    : {
        result: response.overallResult,
        error: '',
        ignored: response.result?.ignoredContextKeys ?? response.results.flatMap((one) => one.ignoredContextKeys ?? [])
      })
}
process.stdout.write(JSON.stringify(verdicts))

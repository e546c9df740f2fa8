package endpoint

import "strings"

// maxImpersonated is the longest chain of service accounts. Google documents no limit; ten is more
// than any chain needs.
const maxImpersonated = 10

// ParseGCPImpersonation parses a comma-separated list of service accounts' addresses. The last
// account is impersonated. The accounts before it are its delegates in their order, as in gcloud's
// --impersonate-service-account. Errors are [*Error] and name the part that is wrong.
func ParseGCPImpersonation(s string) ([]GCPServiceAccount, error) {
	addresses := strings.Split(s, ",")
	if len(addresses) > maxImpersonated {
		return nil, &Error{
			What: whatGCPAccount, Reason: ReasonMalformed, Detail: "the chain has more than ten service accounts", Fix: "shorten the chain",
		}
	}
	var accounts []GCPServiceAccount
	for _, address := range addresses {
		account, err := ParseGCPServiceAccount(address)
		if err != nil {
			return nil, err
		}
		accounts = append(accounts, account)
	}
	return accounts, nil
}

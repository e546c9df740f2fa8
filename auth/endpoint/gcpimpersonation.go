package endpoint

import "strings"

// maxImpersonated bounds a chain of service accounts. Source: Google documents no bound of
// delegates; ten is more than any chain needs.
const maxImpersonated = 10

// ParseGCPImpersonation parses addresses of service accounts with a comma between two. The last is
// the account that is impersonated, and those before it are its delegates in their order, as
// gcloud's --impersonate-service-account has them. Errors are [*Error] and name the part that is
// wrong.
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

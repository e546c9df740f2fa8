package aws

import (
	"context"
	"encoding/json"

	"github.com/lanyard-dev/lanyard/cloudtest/change"
)

// Admin changes a [Cloud] in another process. Each function does what the Cloud's method of the
// same name does, and returns the same errors.
type Admin struct {
	AddAccount         func(ctx context.Context, a Account) error
	PutOIDCProvider    func(ctx context.Context, account string, p OIDCProvider) error
	DeleteOIDCProvider func(ctx context.Context, account, issuer string) error
	PutRole            func(ctx context.Context, account string, r Role) error
	PutTrustPolicy     func(ctx context.Context, account, role string, document json.RawMessage) error
	DeleteRole         func(ctx context.Context, account, role string) error
	PutUser            func(ctx context.Context, account string, u User) error
	DeleteUser         func(ctx context.Context, account, user string) error
	PutRepository      func(ctx context.Context, account string, r Repository) error
	DeleteRepository   func(ctx context.Context, account, region, name string) error
	PutBucket          func(ctx context.Context, account string, b Bucket) error
	DeleteBucket       func(ctx context.Context, account, name string) error
}

// NewAdmin fills the table with the methods that change a [Cloud]. It returns the functions with
// which a client requests these changes.
func NewAdmin(t *change.Table[*Cloud]) Admin {
	const in = " /aws/accounts/{account}"
	return Admin{
		AddAccount:         change.Set(t, "POST /aws/accounts", (*Cloud).AddAccount),
		PutOIDCProvider:    change.Put(t, "PUT"+in+"/oidc-providers", (*Cloud).PutOIDCProvider),
		DeleteOIDCProvider: change.Delete(t, "DELETE"+in+"/oidc-providers?url", (*Cloud).DeleteOIDCProvider),
		PutRole:            change.Put(t, "PUT"+in+"/roles", (*Cloud).PutRole),
		PutTrustPolicy:     change.PutIn(t, "PUT"+in+"/trust-policy?role", (*Cloud).PutTrustPolicy),
		DeleteRole:         change.Delete(t, "DELETE"+in+"/roles?name", (*Cloud).DeleteRole),
		PutUser:            change.Put(t, "PUT"+in+"/users", (*Cloud).PutUser),
		DeleteUser:         change.Delete(t, "DELETE"+in+"/users?name", (*Cloud).DeleteUser),
		PutRepository:      change.Put(t, "PUT"+in+"/repositories", (*Cloud).PutRepository),
		DeleteRepository:   change.DeleteIn(t, "DELETE"+in+"/repositories?region&name", (*Cloud).DeleteRepository),
		PutBucket:          change.Put(t, "PUT"+in+"/buckets", (*Cloud).PutBucket),
		DeleteBucket:       change.Delete(t, "DELETE"+in+"/buckets?name", (*Cloud).DeleteBucket),
	}
}

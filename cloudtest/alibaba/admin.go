package alibaba

import (
	"context"

	"github.com/lanyard-dev/lanyard/cloudtest/change"
)

// Admin changes a [Cloud] in another process. Each function does what the Cloud's method of the
// same name does, and returns the same errors.
type Admin struct {
	AddAccount         func(ctx context.Context, a Account) error
	PutOIDCProvider    func(ctx context.Context, account string, p OIDCProvider) error
	DeleteOIDCProvider func(ctx context.Context, account, name string) error
	PutRole            func(ctx context.Context, account string, r Role) error
	DeleteRole         func(ctx context.Context, account, name string) error
}

// NewAdmin fills the table with the methods that change a [Cloud]. It returns the functions with
// which a client requests these changes.
func NewAdmin(t *change.Table[*Cloud]) Admin {
	const in = " /alibaba/accounts/{account}"
	return Admin{
		AddAccount:         change.Set(t, "POST /alibaba/accounts", (*Cloud).AddAccount),
		PutOIDCProvider:    change.Put(t, "PUT"+in+"/oidc-providers", (*Cloud).PutOIDCProvider),
		DeleteOIDCProvider: change.Delete(t, "DELETE"+in+"/oidc-providers?name", (*Cloud).DeleteOIDCProvider),
		PutRole:            change.Put(t, "PUT"+in+"/roles", (*Cloud).PutRole),
		DeleteRole:         change.Delete(t, "DELETE"+in+"/roles?name", (*Cloud).DeleteRole),
	}
}

package cloudtest

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/lanyard-dev/lanyard/cloudtest/aws"
)

// AWSAdmin is [aws.Cloud] in another process: its changes, by the same names and with the same errors.
type AWSAdmin struct{ admin *Admin }

// AddAccount is [aws.Cloud.AddAccount].
func (a AWSAdmin) AddAccount(ctx context.Context, account aws.Account) error {
	return a.admin.call(ctx, http.MethodPost, "/aws/accounts", nil, account, nil)
}

// PutOIDCProvider is [aws.Cloud.PutOIDCProvider].
func (a AWSAdmin) PutOIDCProvider(ctx context.Context, account string, p aws.OIDCProvider) error {
	return a.admin.call(ctx, http.MethodPut, awsPath(account, "oidc-providers"), nil, p, nil)
}

// DeleteOIDCProvider is [aws.Cloud.DeleteOIDCProvider].
func (a AWSAdmin) DeleteOIDCProvider(ctx context.Context, account, issuer string) error {
	return a.admin.call(ctx, http.MethodDelete, awsPath(account, "oidc-providers"), url.Values{"url": {issuer}}, nil, nil)
}

// PutRole is [aws.Cloud.PutRole].
func (a AWSAdmin) PutRole(ctx context.Context, account string, r aws.Role) error {
	return a.admin.call(ctx, http.MethodPut, awsPath(account, "roles"), nil, r, nil)
}

// PutTrustPolicy is [aws.Cloud.PutTrustPolicy].
func (a AWSAdmin) PutTrustPolicy(ctx context.Context, account, role string, document json.RawMessage) error {
	return a.admin.call(ctx, http.MethodPut, awsPath(account, "trust-policy"), url.Values{"role": {role}}, document, nil)
}

// DeleteRole is [aws.Cloud.DeleteRole].
func (a AWSAdmin) DeleteRole(ctx context.Context, account, role string) error {
	return a.admin.call(ctx, http.MethodDelete, awsPath(account, "roles"), url.Values{"name": {role}}, nil, nil)
}

// PutUser is [aws.Cloud.PutUser].
func (a AWSAdmin) PutUser(ctx context.Context, account string, u aws.User) error {
	return a.admin.call(ctx, http.MethodPut, awsPath(account, "users"), nil, u, nil)
}

// DeleteUser is [aws.Cloud.DeleteUser].
func (a AWSAdmin) DeleteUser(ctx context.Context, account, user string) error {
	return a.admin.call(ctx, http.MethodDelete, awsPath(account, "users"), url.Values{"name": {user}}, nil, nil)
}

// PutRepository is [aws.Cloud.PutRepository].
func (a AWSAdmin) PutRepository(ctx context.Context, account string, r aws.Repository) error {
	return a.admin.call(ctx, http.MethodPut, awsPath(account, "repositories"), nil, r, nil)
}

// DeleteRepository is [aws.Cloud.DeleteRepository].
func (a AWSAdmin) DeleteRepository(ctx context.Context, account, region, name string) error {
	return a.admin.call(ctx, http.MethodDelete, awsPath(account, "repositories"), url.Values{"region": {region}, "name": {name}}, nil, nil)
}

// PutBucket is [aws.Cloud.PutBucket].
func (a AWSAdmin) PutBucket(ctx context.Context, account string, b aws.Bucket) error {
	return a.admin.call(ctx, http.MethodPut, awsPath(account, "buckets"), nil, b, nil)
}

// DeleteBucket is [aws.Cloud.DeleteBucket].
func (a AWSAdmin) DeleteBucket(ctx context.Context, account, name string) error {
	return a.admin.call(ctx, http.MethodDelete, awsPath(account, "buckets"), url.Values{"name": {name}}, nil, nil)
}

func awsPath(account, what string) string {
	return "/aws/accounts/" + url.PathEscape(account) + "/" + what
}

// handleAWS serves what [AWSAdmin] asks for.
func (c *Cloud) handleAWS(handle func(string, func(*http.Request) (any, error))) {
	const in = " /aws/accounts/{account}"
	handle("POST /aws/accounts", withBody(func(_ *http.Request, a aws.Account) (any, error) { return struct{}{}, c.aws.AddAccount(a) }))
	handle("PUT"+in+"/oidc-providers", withBody(func(r *http.Request, p aws.OIDCProvider) (any, error) {
		return struct{}{}, c.aws.PutOIDCProvider(r.PathValue("account"), p)
	}))
	handle("DELETE"+in+"/oidc-providers", func(r *http.Request) (any, error) {
		return struct{}{}, c.aws.DeleteOIDCProvider(r.PathValue("account"), r.URL.Query().Get("url"))
	})
	handle("PUT"+in+"/roles", withBody(func(r *http.Request, role aws.Role) (any, error) {
		return struct{}{}, c.aws.PutRole(r.PathValue("account"), role)
	}))
	handle("DELETE"+in+"/roles", func(r *http.Request) (any, error) {
		return struct{}{}, c.aws.DeleteRole(r.PathValue("account"), r.URL.Query().Get("name"))
	})
	handle("PUT"+in+"/trust-policy", withBody(func(r *http.Request, document json.RawMessage) (any, error) {
		return struct{}{}, c.aws.PutTrustPolicy(r.PathValue("account"), r.URL.Query().Get("role"), document)
	}))
	handle("PUT"+in+"/users", withBody(func(r *http.Request, u aws.User) (any, error) {
		return struct{}{}, c.aws.PutUser(r.PathValue("account"), u)
	}))
	handle("DELETE"+in+"/users", func(r *http.Request) (any, error) {
		return struct{}{}, c.aws.DeleteUser(r.PathValue("account"), r.URL.Query().Get("name"))
	})
	handle("PUT"+in+"/repositories", withBody(func(r *http.Request, repo aws.Repository) (any, error) {
		return struct{}{}, c.aws.PutRepository(r.PathValue("account"), repo)
	}))
	handle("DELETE"+in+"/repositories", func(r *http.Request) (any, error) {
		q := r.URL.Query()
		return struct{}{}, c.aws.DeleteRepository(r.PathValue("account"), q.Get("region"), q.Get("name"))
	})
	handle("PUT"+in+"/buckets", withBody(func(r *http.Request, b aws.Bucket) (any, error) {
		return struct{}{}, c.aws.PutBucket(r.PathValue("account"), b)
	}))
	handle("DELETE"+in+"/buckets", func(r *http.Request) (any, error) {
		return struct{}{}, c.aws.DeleteBucket(r.PathValue("account"), r.URL.Query().Get("name"))
	})
}

// Package awsclient configures clients of the AWS SDK. The clients act as the AWS identity of one
// Kubernetes object. A controller makes them in each reconciliation:
//
//	scope := awsclient.Scope{Provider: provider, Options: options, Region: region, AccountID: id}
//	instances := ec2.NewFromConfig(scope.Config())
//	secrets := secretsmanager.NewFromConfig(scope.Config())
package awsclient

import (
	"context"
	"fmt"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/aws"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
)

// Scope bounds what clients of the AWS SDK do: for whom, in which region and in which account.
type Scope struct {
	// Provider gets the sessions. Required.
	Provider *aws.Provider
	// Options are the options of [auth.GetToken] for each session. They name the identity whose
	// sessions the Provider gets, and must include [auth.WithCache]. Required.
	Options []auth.Option
	// Region is the region of the clients. Required.
	Region endpoint.AWSRegion
	// AccountID is the account, of twelve digits, to which all sessions must belong. Empty for any.
	AccountID string
	// HTTPClient reaches AWS. Nil for the SDK's own client.
	HTTPClient awssdk.HTTPClient
}

// Config returns the configuration for the client of any service. No part of the configuration
// comes from the environment: neither region, endpoint nor credentials.
//
// Each call of a client asks [auth.GetToken] for the session that signs the call. So after a grant
// is withdrawn, the next call of an existing client fails. If a call gets no session, its error
// wraps an [*auth.Error] or an [*AccountError], and AWS gets no request.
func (s Scope) Config() awssdk.Config {
	return awssdk.Config{Region: s.Region.Name, HTTPClient: s.HTTPClient, Credentials: awssdk.CredentialsProviderFunc(s.retrieve)}
}

// retrieve returns the credentials of the next call. The SDK's cache is not used, because it would
// keep credentials after a grant is withdrawn.
func (s Scope) retrieve(ctx context.Context) (awssdk.Credentials, error) {
	credentials, err := aws.NewCredentialsProvider(s.Provider, s.Options...).Retrieve(ctx)
	if err == nil {
		err = s.CheckAccount(credentials.AccountID)
	}
	if err != nil {
		return awssdk.Credentials{}, err
	}
	return credentials, nil
}

// CheckAccount returns an [*AccountError] if sessions of the account accountID are outside the
// scope.
func (s Scope) CheckAccount(accountID string) error {
	if s.AccountID == "" || s.AccountID == accountID {
		return nil
	}
	return &AccountError{Want: s.AccountID, Got: accountID}
}

// AccountError reports that the identity's sessions belong to an account other than the scope's.
type AccountError struct {
	// Want is the AccountID in the Scope. Got is the ID of the account of the sessions.
	Want, Got string
}

// Error names both accounts.
func (e *AccountError) Error() string {
	return fmt.Sprintf("spec.accountID is %s, but the identity gives credentials of account %s; correct spec.accountID or spec.identityRef",
		e.Want, e.Got)
}

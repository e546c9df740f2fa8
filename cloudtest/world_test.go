package cloudtest_test

import (
	"net/url"

	"github.com/lanyard-dev/lanyard/cloudtest/gcp"
	"github.com/lanyard-dev/lanyard/cloudtest/internal/rig"
)

// Names in the AWS configuration of package rig.
const (
	account      = rig.Account
	otherAccount = rig.OtherAccount
	region       = rig.Region
	issuerURL    = rig.IssuerURL
	audience     = rig.Audience
	registryHost = rig.RegistryHost
	subjectA     = rig.SubjectA
	roleA        = rig.RoleA
)

// Names in the Google Cloud configuration of these tests.
const (
	projectID     = "my-org-project"
	projectNumber = "123456789012"
	clusterIssuer = "https://issuer.cluster.example"
	dockerHost    = "europe-west1-docker.pkg.dev"
	poolAudience  = "//iam.googleapis.com/projects/" + projectNumber + "/locations/global/workloadIdentityPools/tenants/providers/kubernetes"
)

func bind(role string, members ...string) []gcp.Binding {
	return []gcp.Binding{{Role: role, Members: members}}
}

// exchangeForm returns the form that asks Google's STS for an access token.
func exchangeForm(audience, token string) url.Values {
	return url.Values{
		"grant_type": {"urn:ietf:params:oauth:grant-type:token-exchange"}, "audience": {audience}, "scope": {"https://www.googleapis.com/auth/cloud-platform"},
		"requested_token_type": {"urn:ietf:params:oauth:token-type:access_token"}, "subject_token": {token},
		"subject_token_type": {"urn:ietf:params:oauth:token-type:jwt"},
	}
}

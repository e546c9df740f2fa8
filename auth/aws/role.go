package aws

import (
	"strings"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/internal/attribute"
)

// role is a role that a subject names: one of AWS or, in text alone, one of an S3-compatible store. Its zero value is none.
type role struct {
	endpoint.RoleARN // zero for a store's

	text string
}

// String is the role's ARN.
func (r role) String() string { return r.text }

// isAWS says whether it is a role that AWS has, which belongs to an account.
func (r role) isAWS() bool { return r.Account != "" }

func parseRole(arn string) (role, error) {
	aws, err := endpoint.ParseRoleARN(arn)
	if err == nil {
		return role{aws, arn}, nil
	}
	store := endpoint.ParseStoreRoleARN(arn)
	if store == nil {
		return role{text: arn}, nil
	}
	if strings.HasPrefix(arn, "arn:minio:") {
		err = store
	}
	return role{}, err
}

// roleAttribute is where subjects name their role.
func roleAttribute() attribute.Attribute {
	return attribute.Attribute{Annotation: RoleAnnotation, Field: RoleField}
}

func roleMissing(subject auth.Subject) error {
	return roleAttribute().Missing(subject, "IAM role", "the ARN of an IAM role")
}

// GetIdentity implements [auth.Provider]: the role that the ServiceAccount's annotation or the WorkloadIdentity's
// providerConfig names. Whether it fits depends on the endpoint, which is not known here: a subject without a role has the
// empty identity, and for AWS's own endpoints [Provider.GetAudience] refuses it, or a store's role, before there is a proof.
func (p *Provider) GetIdentity(account auth.Account) (string, error) {
	arn, named := roleAttribute().Of(account)
	switch {
	case !named:
		return "", nil
	case arn == "":
		return "", roleMissing(account.Subject)
	}
	if _, err := p.roles.Parse(arn); err != nil {
		return "", roleAttribute().Invalid(account.Subject, err)
	}
	return arn, nil
}

// roleFor is the role with which the request goes to sts. AWS has only roles of its accounts. A store decides by the proof's
// claims where there is no role (MinIO does), which gives nobody more than the store's administrator gave to those claims.
func (p *Provider) roleFor(request *auth.Request, sts endpoint.STS) (role, error) {
	arn, subject := request.Key.Identity, request.Key.Subject
	mustBeAWS := !sts.Listed || request.ImageRepository != ""
	if arn == "" {
		if mustBeAWS {
			return role{}, roleMissing(subject)
		}
		return role{}, nil
	}
	r, err := p.roles.Parse(arn)
	if err == nil && mustBeAWS && !r.isAWS() {
		_, err = endpoint.ParseRoleARN(arn) // which says why it is none
	}
	if err != nil {
		return role{}, roleAttribute().Invalid(subject, err)
	}
	return *r, nil
}

package aws

import (
	"cmp"
	"strings"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/internal/attribute"
)

// role is the role of a subject: an IAM role in an AWS account, or a role of an S3-compatible
// store. A store's role has only the field text. The zero value is no role.
type role struct {
	endpoint.RoleARN // zero for a role of an S3-compatible store

	text string
}

// String returns the role's ARN.
func (r role) String() string { return r.text }

// isAWS reports whether the role is an IAM role in an AWS account.
func (r role) isAWS() bool { return r.Account != "" }

// parseRole parses the ARN of a role: an IAM role in an AWS account, or a role of an S3-compatible
// store such as MinIO.
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

// roleAttribute is the attribute in which subjects name their role.
func roleAttribute() attribute.Attribute {
	return attribute.Attribute{Annotation: RoleAnnotation, Field: RoleField, Spec: attributeRole}
}

// assumeAttribute is the attribute in which subjects name a second role. They assume it with the
// session of their own role.
func assumeAttribute() attribute.Attribute {
	return attribute.Attribute{Annotation: AssumeRoleAnnotation, Field: AssumeRoleField}
}

func roleMissing(subject auth.Subject) error {
	return roleAttribute().Missing(subject, "IAM role", "the ARN of an IAM role")
}

// GetIdentity implements [auth.Provider]. It returns the ARN of the role that the ServiceAccount's
// annotation or the WorkloadIdentity's providerConfig names. If the account also names a second
// role ([AssumeRoleAnnotation], [AssumeRoleField]), GetIdentity returns the second role instead. If
// the account names no role, GetIdentity returns an empty string.
//
// Whether a request needs an IAM role depends on its STS endpoint, which GetIdentity does not know.
// So GetIdentity accepts an account without a role, and a role of an S3-compatible store. If the
// request needs an IAM role, [Provider.GetProofRequest] refuses such an account before a proof is
// made.
func (p *Provider) GetIdentity(account auth.Account) (string, error) {
	arn, named := roleAttribute().Of(account)
	chained, isChained := assumeAttribute().Of(account)
	switch {
	case isChained:
		x, err := p.ownChain(account, arn, chained)
		if err != nil {
			return "", err
		}
		return x.then.Role.String(), nil
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

// roleFor returns the role that the request names; zero if it names none. The argument source is
// the name of the source session (see [SessionRequest]); empty for none.
//
//   - A request to AWS STS, or for an image repository, needs an IAM role. Without a role, it needs
//     a source session; the token is then this session itself.
//   - Any other request is for an S3-compatible store, and may name no role. MinIO then gives the
//     permissions that its administrator attached to the proof's claims.
func (p *Provider) roleFor(request *auth.Request, sts endpoint.STS, source string) (role, error) {
	arn, subject := request.Key.Identity, request.Key.Subject
	mustBeAWS := !sts.Listed || request.ImageRepository != ""
	if arn == "" {
		if mustBeAWS && source == "" {
			return role{}, roleMissing(subject)
		}
		return role{}, nil
	}
	r, err := p.roles.Parse(arn)
	if err == nil && mustBeAWS && !r.isAWS() {
		_, err = endpoint.ParseRoleARN(arn) // this error says why arn is not the ARN of an IAM role
	}
	if err != nil {
		return role{}, roleAttribute().Invalid(subject, err)
	}
	return *r, nil
}

// ownChain is a chain of two roles that a tenant names. The session of the first role assumes the
// second role.
type ownChain struct {
	first role
	then  endpoint.Assumption
}

// ownChain returns the account's chain of two roles, parsed from the values of the account's
// attributes.
func (p *Provider) ownChain(account auth.Account, arn, chained string) (ownChain, error) {
	if arn == "" {
		return ownChain{}, roleMissing(account.Subject)
	}
	first, err := p.roles.Parse(arn)
	if err == nil && !first.isAWS() {
		_, err = endpoint.ParseRoleARN(arn) // this error says why arn is not the ARN of an IAM role
	}
	if err != nil {
		return ownChain{}, roleAttribute().Invalid(account.Subject, err)
	}
	then, err := p.assumptions.Parse(chained)
	if err == nil && then.Role.Partition != first.Partition {
		err = &endpoint.Error{
			What: "role to assume", Reason: endpoint.ReasonPartition, Detail: "it is in partition " + then.Role.Partition,
			Fix: "name a role in partition " + first.Partition + ", as the first role",
		}
	}
	switch {
	case err != nil:
		return ownChain{}, assumeAttribute().Invalid(account.Subject, err)
	case account.Fingerprint == "":
		return ownChain{}, noFingerprint(account.Subject)
	}
	return ownChain{*first, *then}, nil
}

// chain adds the account's own chain to the plan, if the account has one. The plan's role is then
// the first role of the chain.
func (p *Provider) chain(x plan, request *auth.Request) (plan, error) {
	chained, isChained := assumeAttribute().Of(request.Account)
	if !isChained {
		return x, nil
	}
	if x.sts.Listed {
		return plan{}, assumeAttribute().Invalid(request.Account.Subject, &endpoint.Error{
			What: "role to assume", Reason: endpoint.ReasonHost, Detail: "the STS endpoint is not AWS's", Fix: "remove it, or use AWS STS",
		})
	}
	arn, _ := roleAttribute().Of(request.Account)
	own, err := p.ownChain(request.Account, arn, chained)
	if err != nil {
		return plan{}, err
	}
	then := x
	then.session = SessionRequest{
		Source: "role " + own.first.String(), ExternalID: own.then.ExternalID, Name: cmp.Or(own.then.SessionName, x.session.Name),
		Duration: own.then.Duration,
	}
	x.role, x.then = own.first, &then
	return x, nil
}

package aws

import (
	"errors"
	"fmt"
	"strings"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
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

// GetIdentity implements [auth.Provider]: the role that the ServiceAccount's annotation or the WorkloadIdentity's
// providerConfig names. Which one will do is the endpoint's matter, which is not known here: a subject without a role has the
// empty identity, and it or a store's role is refused at AWS before there is a proof, by [Provider.GetAudience].
func (p *Provider) GetIdentity(account auth.Account) (string, error) {
	arn, named := account.Attributes[roleAttribute(account.Subject)]
	if !named {
		return "", nil
	}
	if _, err := p.roles.parse(arn); err != nil {
		return "", identityError(account.Subject, arn == "", err)
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
			return role{}, identityError(subject, true, nil)
		}
		return role{}, nil
	}
	r, err := p.roles.parse(arn)
	if err == nil && mustBeAWS && !r.isAWS() {
		_, err = endpoint.ParseRoleARN(arn) // which says why it is none
	}
	if err != nil {
		return role{}, identityError(subject, false, err)
	}
	return *r, nil
}

func roleAttribute(subject auth.Subject) string {
	if subject.Kind() == auth.KindServiceAccount {
		return RoleAnnotation
	}
	return RoleField
}

func roleAt(subject auth.Subject) string {
	if subject.Kind() == auth.KindServiceAccount {
		return fmt.Sprintf("annotation %s of ServiceAccount %s/%s", RoleAnnotation, subject.Namespace(), subject.Name())
	}
	return fmt.Sprintf("providerConfig.%s of %s %s/%s", RoleField, subject.Kind(), subject.Namespace(), subject.Name())
}

func identityError(subject auth.Subject, missing bool, err error) error {
	if missing {
		return &auth.Error{
			Stage: auth.StageIdentity, Code: auth.CodeIdentityMissing,
			Fix: fmt.Sprintf("set %s to the ARN of an IAM role", roleAt(subject)),
			Err: errors.New(subject.Namespace() + "/" + subject.Name() + " names no IAM role"),
		}
	}
	return refused(auth.StageIdentity, auth.CodeIdentityInvalid, roleAt(subject), err)
}

package aws

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/aws-sdk-go-v2/service/sts/types"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/internal/remote"
)

// SessionDuration is the lifetime that every session asks for: AWS's default, which every role permits (the smallest maximum
// of a role is an hour). It is sent explicitly, because listed endpoints outside AWS have defaults of their own; MinIO's is the
// remaining life of the proof, which is minutes.
const SessionDuration = time.Hour

// NewTokenForServiceAccount implements [auth.Provider] with AssumeRoleWithWebIdentity, for a subject of any kind. The token
// is a [*Token]. The proof goes to the endpoint that the request's key names and nowhere else; no redirect is followed.
func (p *Provider) NewTokenForServiceAccount(ctx context.Context, proof auth.Proof, request *auth.Request) (auth.Token, error) {
	x, err := p.plan(request)
	if err != nil {
		return nil, err
	}
	options := sts.Options{
		Region:      request.Key.STSRegion,
		Credentials: awssdk.AnonymousCredentials{},
		HTTPClient:  p.stsClient(request, x.url),
		Retryer:     newRetryer(),
	}
	if x.url != "" {
		options.BaseEndpoint = awssdk.String(x.url)
	}
	asked := time.Now()
	answer, err := sts.New(options).AssumeRoleWithWebIdentity(ctx, &sts.AssumeRoleWithWebIdentityInput{
		RoleArn:          awssdk.String(x.role.String()), // empty for none: the SDK refuses to leave it out
		RoleSessionName:  awssdk.String(sessionName(request.Key.Subject)),
		WebIdentityToken: awssdk.String(proof.Token.Reveal()),
		DurationSeconds:  awssdk.Int32(int32(SessionDuration.Seconds())),
	})
	if err != nil {
		return nil, x.failure(ctx, err, proof, request)
	}
	token, err := newToken(answer.Credentials, asked)
	if err != nil {
		return nil, remote.Invalid(x.where(), "a session", err).Error(auth.StageExchange, x.operation())
	}
	return token, nil
}

// where names the STS for people.
func (x plan) where() string {
	if x.url != "" {
		return "the STS endpoint " + x.url
	}
	return "AWS STS in " + x.sts.Region
}

// newToken is the session in an answer to a question that was put at asked. It ends by AWS's clock, but never later than it can by
// ours: a clock that is behind would keep it beyond its end.
func newToken(c *types.Credentials, asked time.Time) (*Token, error) {
	switch {
	case c == nil:
		return nil, errors.New("no credentials in it")
	case awssdk.ToString(c.AccessKeyId) == "":
		return nil, errors.New("no access key ID in it")
	case awssdk.ToString(c.SecretAccessKey) == "":
		return nil, errors.New("no secret access key in it")
	case awssdk.ToString(c.SessionToken) == "":
		return nil, errors.New("no session token in it")
	case c.Expiration == nil:
		return nil, errors.New("no expiration in it")
	}
	ends := *c.Expiration
	if latest := asked.Add(SessionDuration); ends.After(latest) {
		ends = latest
	}
	return &Token{
		AccessKeyID:     auth.NewSecret(*c.AccessKeyId),
		SecretAccessKey: auth.NewSecret(*c.SecretAccessKey),
		SessionToken:    auth.NewSecret(*c.SessionToken),
		ExpiresAt:       ends.UTC(),
	}, nil
}

// failure tells people what to correct, as far as the answer says.
func (x plan) failure(ctx context.Context, err error, proof auth.Proof, request *auth.Request) error {
	f := sortFailure(ctx, err, x.where(), proof.Token)
	c := remote.ClaimsOf(proof).Shown(request.Key.Subject)
	if x.sts.Listed {
		x.explainStore(&f, c, request)
	} else {
		x.explainAWS(&f, c, request)
	}
	return f.error(auth.StageExchange, x.operation())
}

// operation names the call for people.
func (x plan) operation() string {
	if x.role == (role{}) {
		return "AssumeRoleWithWebIdentity without a role"
	}
	return "AssumeRoleWithWebIdentity for role " + x.role.String()
}

// explainAWS reads the codes of AWS STS. Source: AWS STS API reference, AssumeRoleWithWebIdentity, "Errors".
func (x plan) explainAWS(f *failure, claims remote.Claims, request *auth.Request) {
	issuer := strings.TrimPrefix(claims.Issuer, "https://")
	audience := x.sts.Audience()

	switch f.api {
	case "AccessDenied", "AccessDeniedException":
		f.Code = auth.CodeTrustRefused
		f.Fix = fmt.Sprintf("let the trust policy of role %s allow sts:AssumeRoleWithWebIdentity to arn:%s:iam::%s:oidc-provider/%s with StringEquals %s:sub = %s and %s:aud = %s",
			x.role, x.role.Partition, x.role.Account, issuer, issuer, claims.Subject, issuer, audience)
	case "InvalidIdentityToken":
		f.Code = auth.CodeTrustRefused
		f.Fix = fmt.Sprintf("register %s as an IAM OIDC identity provider of account %s with audience %s, and check that its keys are those of this cluster",
			issuer, x.role.Account, audience)
		// STS says so of an issuer that it cannot ask just now, as well as of one that it never can.
		if strings.Contains(f.message, "verification key") {
			f.Code = auth.CodeUnavailable
			f.Fix = fmt.Sprintf("check that STS can fetch the keys of %s from the internet", issuer)
		}
	case "IDPRejectedClaim":
		f.Code = auth.CodeTrustRefused
		f.Fix = fmt.Sprintf("check the claims sub = %s and aud = %s against the identity provider %s of account %s, and the clock of the API server against AWS's",
			claims.Subject, audience, issuer, x.role.Account)
	case "IDPCommunicationError":
		f.Code = auth.CodeUnavailable
		f.Fix = fmt.Sprintf("check that STS can reach %s", issuer)
	case "ExpiredTokenException", "ExpiredToken":
		f.Code = auth.CodeProofInvalid
		f.message = "" // it holds the time of day
		f.Fix = "compare the clock of the API server with AWS's"
	case "RegionDisabledException":
		f.Code = auth.CodeRefused
		f.Fix = fmt.Sprintf("activate STS in region %s for account %s, or set AWS_REGION to another one", request.Key.STSRegion, x.role.Account)
	case "MalformedPolicyDocument", "PackedPolicyTooLarge":
		f.Code = auth.CodeRefused
		f.Fix = "check the session tags in the claim https://aws.amazon.com/tags of the proof; no session policy is sent"
	case "ValidationError":
		f.Code = auth.CodeRefused
		f.Fix = fmt.Sprintf("check that role %s exists and permits sessions of %s", x.role, SessionDuration)
	}
}

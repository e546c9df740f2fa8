package aws

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/aws-sdk-go-v2/service/sts/types"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/internal/remote"
)

// SessionDuration is the default lifetime of a session, as in AWS. Every role permits it, because a
// role's maximum is at least an hour. Every request sends the lifetime, because endpoints outside
// AWS have other defaults. MinIO's default is the remaining life of the proof: some minutes.
const SessionDuration = time.Hour

// NewToken implements [auth.Provider]. The token is a [*Token]. The proof decides what NewToken
// calls:
//
//   - If the proof is a JWT, NewToken calls AssumeRoleWithWebIdentity. If the account also names a
//     second role, NewToken then calls AssumeRole with the new session.
//   - If the proof is a session, NewToken calls AssumeRole. If the account names no role, NewToken
//     calls GetCallerIdentity instead.
//
// NewToken sends the proof only to the STS that request.Key names, and follows no redirects.
func (p *Provider) NewToken(ctx context.Context, proof auth.Proof, request *auth.Request) (auth.Token, error) {
	x, err := p.plan(request)
	if err != nil {
		return nil, err
	}
	if x.session.Source == "" {
		return p.assumeOwn(ctx, proof, x, request)
	}
	source, err := sessionOf(proof)
	if err != nil {
		return nil, err
	}
	if x.role.text == "" {
		return p.identify(ctx, source, x, request)
	}
	return p.assumeWithSession(ctx, source, x, request)
}

// assumeOwn exchanges a JWT of the subject for a session of its role. If the plan has a second
// role, assumeOwn exchanges this session for a session of the second role. AWS may refuse the
// second role for a long time. So the cache keeps the first session, and retries do not request it
// again.
func (p *Provider) assumeOwn(ctx context.Context, proof auth.Proof, x plan, request *auth.Request) (auth.Token, error) {
	assume := func(ctx context.Context) (auth.Token, error) { return p.assumeWithJWT(ctx, proof, x, request) }
	if x.then == nil {
		return assume(ctx)
	}
	first, err := request.Step(ctx, x.role.String(), assume)
	if err != nil {
		return nil, err
	}
	session, err := sessionOf(first)
	if err != nil {
		return nil, err
	}
	return p.assumeWithSession(ctx, session, *x.then, request)
}

// assumeWithJWT exchanges a JWT of the subject for a session of the plan's role.
func (p *Provider) assumeWithJWT(ctx context.Context, proof auth.Proof, x plan, request *auth.Request) (auth.Token, error) {
	jwt, err := auth.JWTOf(proof)
	if err != nil {
		return nil, err
	}
	duration := cmp.Or(x.session.Duration, SessionDuration)
	asked := time.Now()
	answer, err := p.sts(x, awssdk.AnonymousCredentials{}, request).AssumeRoleWithWebIdentity(ctx, &sts.AssumeRoleWithWebIdentityInput{
		RoleArn:          awssdk.String(x.role.String()), // empty if there is no role
		RoleSessionName:  awssdk.String(x.sessionName(request.Key.Subject)),
		WebIdentityToken: awssdk.String(jwt.Token.Reveal()),
		DurationSeconds:  awssdk.Int32(int32(duration.Seconds())),
		Policy:           optional(x.session.Policy),
		PolicyArns:       descriptors(x.session.PolicyARNs),
	})
	if err != nil {
		return nil, x.exchangeFailure(ctx, err, jwt, request)
	}
	token, err := x.parseToken(answer.Credentials, answer.AssumedRoleUser, asked, duration)
	if err != nil {
		return nil, remote.Invalid(x.where(), "a session", err).Error(auth.StageExchange, x.operation())
	}
	return token, nil
}

// sts returns a client of the request's STS that signs with the credentials.
func (p *Provider) sts(x plan, credentials awssdk.CredentialsProvider, request *auth.Request) *sts.Client {
	options := sts.Options{
		Region:      request.Key.STSRegion,
		Credentials: credentials,
		HTTPClient:  p.stsClient(request, x.url),
		Retryer:     newRetryer(),
	}
	if x.url != "" {
		options.BaseEndpoint = awssdk.String(x.url)
	}
	return sts.New(options)
}

// where returns the STS's name, for use in errors.
func (x plan) where() string {
	if x.url != "" {
		return "the STS endpoint " + x.url
	}
	return "AWS STS in " + x.sts.Region
}

// parseToken returns the session in AWS's answer. The session ends at the answer's expiration, but
// no later than the given duration after the request (asked). So a local clock that is behind does
// not prolong the session. A session outside the role's account is an error.
func (x plan) parseToken(c *types.Credentials, user *types.AssumedRoleUser, asked time.Time, duration time.Duration) (*Token, error) {
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
	ends := slices.MinFunc([]time.Time{*c.Expiration, asked.Add(duration)}, time.Time.Compare)
	token := &Token{
		AccessKeyID:     auth.NewSecret(*c.AccessKeyId),
		SecretAccessKey: auth.NewSecret(*c.SecretAccessKey),
		SessionToken:    auth.NewSecret(*c.SessionToken),
		ExpiresAt:       ends.UTC(),
	}
	if x.sts.Listed || user == nil { // an S3-compatible store has no accounts to compare
		return token, nil
	}
	token.ARN = awssdk.ToString(user.Arn)
	if token.AccountID = accountOf(token.ARN); token.AccountID != x.role.Account {
		return nil, errors.New("it is of another account than the role's")
	}
	return token, nil
}

// exchangeFailure returns the error for a failed exchange. Its fix says what to correct, if the
// answer shows the reason.
func (x plan) exchangeFailure(ctx context.Context, err error, proof *auth.JWT, request *auth.Request) error {
	f := classify(ctx, err, x.where(), proof.Token)
	c := remote.ClaimsOf(proof).Shown(request.Key.Subject)
	if x.sts.Listed {
		x.explainStore(&f, c, request)
	} else {
		x.explainAWS(&f, c, request)
	}
	return f.error(auth.StageExchange, x.operation())
}

// operation returns the call's name, for use in errors.
func (x plan) operation() string {
	if x.role == (role{}) {
		return "AssumeRoleWithWebIdentity without a role"
	}
	return "AssumeRoleWithWebIdentity for role " + x.role.String()
}

// explainAWS sets the code and the fix of f according to the error code of AWS STS. Source: AWS STS
// API reference, AssumeRoleWithWebIdentity, "Errors".
func (x plan) explainAWS(f *failure, claims remote.Claims, request *auth.Request) {
	issuer := strings.TrimPrefix(claims.Issuer, "https://")
	audience := x.sts.Audience()

	switch f.api {
	case "AccessDenied", "AccessDeniedException":
		f.Code = auth.CodeTrustRefused
		f.Fix = fmt.Sprintf("let the trust policy of role %s allow sts:AssumeRoleWithWebIdentity to arn:%s:iam::%s:oidc-provider/%s with "+
			"StringEquals %s:sub = %s and %s:aud = %s",
			x.role, x.role.Partition, x.role.Account, issuer, issuer, claims.Subject, issuer, audience)
	case "InvalidIdentityToken":
		f.Code = auth.CodeTrustRefused
		f.Fix = fmt.Sprintf("register %s as an IAM OIDC identity provider of account %s with audience %s, and check that its keys are "+
			"those of this cluster",
			issuer, x.role.Account, audience)
		// STS gives the same answer whether it cannot reach an issuer now or can never reach it. So
		// the error counts as temporary.
		if strings.Contains(f.message, "verification key") {
			f.Code = auth.CodeUnavailable
			f.Fix = fmt.Sprintf("check that STS can fetch the keys of %s from the internet", issuer)
		}
	case "IDPRejectedClaim":
		f.Code = auth.CodeTrustRefused
		f.Fix = fmt.Sprintf("check the claims sub = %s and aud = %s against the identity provider %s of account %s, and the clock of the "+
			"API server against AWS's",
			claims.Subject, audience, issuer, x.role.Account)
	case "IDPCommunicationError":
		f.Code = auth.CodeUnavailable
		f.Fix = fmt.Sprintf("check that STS can reach %s", issuer)
	case "ExpiredTokenException", "ExpiredToken":
		f.Code = auth.CodeProofInvalid
		f.message = "" // the time of day in the message would make each error different
		f.Fix = "compare the clock of the API server with AWS's"
	case "RegionDisabledException":
		f.Code = auth.CodeRefused
		f.Fix = fmt.Sprintf("activate STS in region %s for account %s, or set AWS_REGION to another region",
			request.Key.STSRegion, x.role.Account)
	case "MalformedPolicyDocument", "PackedPolicyTooLarge":
		f.Code = auth.CodeRefused
		f.Fix = "check the session tags in the claim https://aws.amazon.com/tags of the proof, and the session policies if the identity has any"
	case "ValidationError":
		f.Code = auth.CodeRefused
		f.Fix = fmt.Sprintf("check that role %s exists and permits sessions of %s", x.role, cmp.Or(x.session.Duration, SessionDuration))
	}
}

package aws

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/aws-sdk-go-v2/service/sts/types"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/internal/remote"
)

// chainedDuration is the longest duration of a session in role chaining, where a role's session
// assumes another role. Source: IAM user guide, "Methods to assume a role", role chaining.
const chainedDuration = time.Hour

// sessionOf returns a proof as a session. If the proof is not a session, the error is an
// [*auth.Error] with [auth.CodeProofInvalid].
func sessionOf(proof auth.Proof) (*Token, error) {
	if session, ok := proof.(*Token); ok && session != nil {
		return session, nil
	}
	return nil, &auth.Error{
		Stage: auth.StageTokenRequest, Code: auth.CodeProofInvalid,
		Fix: "have the Prover pass the session of the source",
		Err: fmt.Errorf("the proof is a %T, not a session of AWS", proof),
	}
}

// errBroken is the error that budgets.leave gets if a call of AssumeRole panics. The function leave
// then frees the call's place. The call has no answer, so no pause starts.
var errBroken = errors.New("the call broke off")

// assumeWithSession calls AssumeRole for the plan's role. The given session signs the call.
func (p *Provider) assumeWithSession(ctx context.Context, source *Token, x plan, request *auth.Request) (auth.Token, error) {
	duration := cmp.Or(x.session.Duration, SessionDuration)
	if !source.SessionToken.IsZero() {
		duration = min(duration, chainedDuration)
	}
	charged := x.payerOf(source, request)
	leave, pause, err := p.budgets.enter(ctx, charged, request.Tenant())
	switch {
	case err != nil:
		return nil, x.crowdedOut(err, charged, request.Key.Subject)
	case pause > 0:
		return nil, x.throttledBefore(charged, pause)
	}
	// The deferred leave frees the call's place in the budget, even if AssumeRole panics. Package
	// auth/cache recovers the panic, so the program goes on and needs the place.
	outcome := errBroken
	defer func() { leave(outcome) }()
	asked := time.Now()
	answer, err := p.sts(x, source.provider(), request).AssumeRole(ctx, &sts.AssumeRoleInput{
		RoleArn:           awssdk.String(x.role.String()),
		RoleSessionName:   awssdk.String(x.sessionName(request.Key.Subject)),
		DurationSeconds:   awssdk.Int32(int32(duration.Seconds())),
		ExternalId:        optional(x.session.ExternalID),
		Policy:            optional(x.session.Policy),
		PolicyArns:        descriptors(x.session.PolicyARNs),
		SourceIdentity:    optional(x.session.SourceIdentity),
		Tags:              tags(x.session.Tags),
		TransitiveTagKeys: x.session.TransitiveTags,
	})
	if outcome = err; err != nil {
		return nil, x.assumeFailure(ctx, err, source)
	}
	token, err := x.parseToken(answer.Credentials, answer.AssumedRoleUser, asked, duration)
	if err != nil {
		return nil, remote.Invalid(x.where(), "a session", err).Error(auth.StageExchange, x.chainOperation())
	}
	return token, nil
}

// identify asks AWS for the identity of the given session, and returns the session with its ARN and
// account. AWS refuses wrong keys here, so this call also checks static keys before their first
// use.
func (p *Provider) identify(ctx context.Context, source *Token, x plan, request *auth.Request) (auth.Token, error) {
	const operation = "GetCallerIdentity"
	answer, err := p.sts(x, source.provider(), request).GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		f := classify(ctx, err, x.where(), source.SecretAccessKey, source.SessionToken)
		x.explainSource(&f)
		return nil, f.error(auth.StageExchange, operation)
	}
	token := *source
	token.ARN, token.AccountID = awssdk.ToString(answer.Arn), awssdk.ToString(answer.Account)
	if token.AccountID == "" || accountOf(token.ARN) != token.AccountID {
		return nil, remote.Invalid(x.where(), "an account", errors.New("it names no account")).Error(auth.StageExchange, operation)
	}
	return &token, nil
}

// assumeFailure returns the error for a failed AssumeRole.
func (x plan) assumeFailure(ctx context.Context, err error, source *Token) error {
	f := classify(ctx, err, x.where(), source.SecretAccessKey, source.SessionToken)
	switch f.api {
	case "AccessDenied", "AccessDeniedException":
		f.Code = auth.CodeTrustRefused
		f.Fix = fmt.Sprintf("let the trust policy of role %s allow %s to %s, let that identity's permission policy allow the same on the "+
			"role, and check the external ID",
			x.role, strings.Join(x.actions(), " and "), cmp.Or(source.ARN, x.session.Source))
	case "MalformedPolicyDocument":
		f.Code = auth.CodeRefused
		f.Fix = "correct the session policy (inlinePolicy)"
	case "PackedPolicyTooLarge":
		f.Code = auth.CodeRefused
		f.Fix = "shorten the session policies (inlinePolicy, policyARNs) or the tags"
	case "ValidationError":
		f.Code = auth.CodeRefused
		f.Fix = fmt.Sprintf("check that role %s exists and permits sessions of %s, and the tags and session policies",
			x.role, cmp.Or(x.session.Duration, SessionDuration))
	default:
		x.explainSource(&f)
	}
	if f.Code == auth.CodeThrottled && source.AccountID != "" {
		f.Fix = waitForQuota(source.AccountID)
	}
	return f.error(auth.StageExchange, x.chainOperation())
}

// explainSource sets the code and the fix of f if AWS rejects the credentials that signed the call.
// It also does so if the account of these credentials has not activated STS in the region.
func (x plan) explainSource(f *failure) {
	switch f.api {
	case "InvalidClientTokenId", "UnrecognizedClientException", "SignatureDoesNotMatch", "AuthFailure":
		f.Code = auth.CodeProofInvalid
		f.message = "" // the message may repeat the text that was signed
		f.Fix = "check that AWS knows the keys of " + x.session.Source + ": new keys need some seconds"
	case "ExpiredToken", "ExpiredTokenException", "RequestExpired":
		f.Code = auth.CodeProofInvalid
		f.message = "" // a time of day in the message would make each error different
		f.Fix = "renew the keys of " + x.session.Source + ", or compare the controller's clock with AWS's"
	case "RegionDisabledException":
		f.Code = auth.CodeRefused
		f.Fix = fmt.Sprintf("activate STS in region %s for the account, or set AWS_REGION to another region", x.sts.Region)
	}
}

// actions returns the IAM actions that the request needs.
func (x plan) actions() []string {
	actions := []string{"sts:AssumeRole"}
	if len(x.session.Tags) > 0 {
		actions = append(actions, "sts:TagSession")
	}
	if x.session.SourceIdentity != "" {
		actions = append(actions, "sts:SetSourceIdentity")
	}
	return actions
}

func (x plan) chainOperation() string {
	return "AssumeRole for role " + x.role.String() + " with " + x.session.Source
}

// sessionName returns the requested session name. If none is requested, it returns a name that
// identifies the subject.
func (x plan) sessionName(subject auth.Subject) string {
	if x.session.Name == "" {
		return sessionName(subject)
	}
	return FitSessionName(x.session.Name)
}

// accountOf returns the account in an ARN; empty for text that is not an ARN.
func accountOf(arn string) string {
	if parts := strings.SplitN(arn, ":", 6); len(parts) == 6 {
		return parts[4]
	}
	return ""
}

func optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

func descriptors(arns []string) []types.PolicyDescriptorType {
	var list []types.PolicyDescriptorType
	for _, arn := range arns {
		list = append(list, types.PolicyDescriptorType{Arn: &arn})
	}
	return list
}

func tags(of map[string]string) []types.Tag {
	var list []types.Tag
	for _, key := range slices.Sorted(maps.Keys(of)) {
		list = append(list, types.Tag{Key: &key, Value: new(of[key])})
	}
	return list
}

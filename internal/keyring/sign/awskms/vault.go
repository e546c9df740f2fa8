// Package awskms stores the private halves of key rings in AWS Key Management Service (KMS). The
// private halves never leave KMS: each signature is a call of KMS.
//
// For each key in KMS, a Secret in the cluster has the key's ARN. So the token server needs no
// right to list the account's keys, and no cluster finds another cluster's keys. Each key also has
// tags. An IAM policy can restrict the token server to keys with its issuer's tag; docs/aws-kms.md
// has such a policy.
package awskms

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	awsarn "github.com/aws/aws-sdk-go-v2/aws/arn"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	kmstypes "github.com/aws/aws-sdk-go-v2/service/kms/types"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lanyard-dev/lanyard/api/identity/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/aws"
	"github.com/lanyard-dev/lanyard/internal/keyring/sign"
)

// For each key in KMS, there is a Secret of this type. Its data has the key's ARN under dataARN.
const (
	secretType = corev1.SecretType("identity.lanyard.dev/aws-kms-key")
	dataARN    = "arn"

	// TagIssuer is the tag with the issuer's URL, or with the name of a trust domain.
	TagIssuer = "identity.lanyard.dev/issuer"
	// TagRing is the tag with the UID of the KeyRing.
	TagRing = "identity.lanyard.dev/keyring-uid"
)

const (
	signTimeout = 5 * time.Second  // limit for one signature, retries included
	callTimeout = 10 * time.Second // limit for any other call, retries included
	attempts    = 3

	// maxBackoff bounds the wait between two attempts. Together, the waits of a call are shorter
	// than signTimeout. So a call returns KMS's error, and not a timeout.
	maxBackoff = signTimeout / attempts

	// credentialWindow is the remaining life at which the credentials for KMS are replaced.
	credentialWindow = time.Minute

	// deletionDays is the number of days until KMS deletes a destroyed key: the maximum that KMS
	// allows. Until then, people can restore the key.
	deletionDays = 30
)

// Config configures a [Vault].
type Config struct {
	// Issuer is the URL of the issuer that signs with the keys. Without an issuer, it is the name
	// of the trust domain. It is the value of the tag TagIssuer.
	Issuer string
	// Region is the region in which new keys are made. Keys of other regions stay usable.
	Region string
	// Transport has the administrator's proxy and certificate authorities. All connections use
	// them.
	Transport *http.Transport
}

// Vault is a [sign.Vault] in KMS. It uses the AWS identity of the program's environment (IRSA, EKS
// Pod Identity); see [aws.Provider.NewControllerToken].
type Vault struct {
	client *kms.Client
	issuer string
}

var _ sign.Vault = (*Vault)(nil)

// New returns a Vault with the configuration. It sends no request.
func New(config Config) (*Vault, error) {
	if config.Region == "" {
		return nil, errors.New("keys in AWS KMS need a region: set --aws-region, or AWS_REGION in the environment")
	}
	provider, err := aws.NewProvider(aws.Config{Region: config.Region, Transport: config.Transport})
	if err != nil {
		return nil, err
	}
	direct := &http.Client{
		Transport: config.Transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return &Vault{issuer: config.Issuer, client: kms.New(kms.Options{
		Region: config.Region, Credentials: credentials(provider), HTTPClient: direct,
		Retryer: retry.NewStandard(func(o *retry.StandardOptions) { o.MaxAttempts, o.MaxBackoff = attempts, maxBackoff }),
	})}, nil
}

// credentials returns the credentials of the program's own environment.
func credentials(provider *aws.Provider) awssdk.CredentialsProvider {
	retrieve := awssdk.CredentialsProviderFunc(func(ctx context.Context) (awssdk.Credentials, error) {
		token, err := auth.GetToken(ctx, provider, auth.WithController())
		if err != nil {
			return awssdk.Credentials{}, err
		}
		session, ok := token.(*aws.Token)
		if !ok {
			return awssdk.Credentials{}, fmt.Errorf("a %T is not a session of AWS", token)
		}
		return session.Credentials(), nil
	})
	return awssdk.NewCredentialsCache(retrieve, func(o *awssdk.CredentialsCacheOptions) { o.ExpiryWindow = credentialWindow })
}

// SecretType implements [sign.Vault].
func (v *Vault) SecretType() corev1.SecretType { return secretType }

// Create implements [sign.Vault]. KMS may have made a key even if the call fails. Such a key has
// the issuer's tag, signs nothing, and is in no Secret.
func (v *Vault) Create(ctx context.Context, ring types.UID, algorithm v1alpha1.Algorithm) (map[string][]byte, crypto.Signer, error) {
	spec, err := specOf(algorithm)
	if err != nil {
		return nil, nil, err
	}
	arn, err := v.createKey(ctx, ring, spec)
	if err != nil {
		return nil, nil, err
	}
	data := map[string][]byte{dataARN: []byte(arn)}
	private, err := v.open(ctx, arn, newKey)
	if err != nil {
		return nil, nil, errors.Join(err, v.Destroy(context.WithoutCancel(ctx), data))
	}
	return data, private, nil
}

func (v *Vault) createKey(ctx context.Context, ring types.UID, spec kmstypes.KeySpec) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	tag := func(key, value string) kmstypes.Tag { return kmstypes.Tag{TagKey: &key, TagValue: &value} }
	out, err := v.client.CreateKey(ctx, &kms.CreateKeyInput{
		KeySpec: spec, KeyUsage: kmstypes.KeyUsageTypeSignVerify,
		Description: awssdk.String("Lanyard: signs tokens of " + v.issuer),
		Tags:        []kmstypes.Tag{tag(TagIssuer, v.issuer), tag(TagRing, string(ring))},
	}, once)
	if err != nil {
		return "", failure(ctx, "CreateKey", "", err)
	}
	return awssdk.ToString(out.KeyMetadata.Arn), nil
}

// once limits a call to one attempt: two attempts could make two keys.
func once(o *kms.Options) { o.Retryer = awssdk.NopRetryer{} }

// newKey is an option of a call that uses a new key. The call is retried if KMS does not find the
// key: parts of KMS may not have the key yet. Source: KMS Developer Guide, "AWS KMS eventual
// consistency".
func newKey(o *kms.Options) {
	o.Retryer = retry.AddWithErrorCodes(o.Retryer, (&kmstypes.NotFoundException{}).ErrorCode())
}

// Open implements [sign.Vault]. It asks KMS for the public half.
func (v *Vault) Open(ctx context.Context, data map[string][]byte) (crypto.Signer, error) {
	return v.OpenKey(ctx, string(data[dataARN]))
}

// OpenKey returns the key with this ARN. It asks KMS for the public half. Somebody else made the
// key, so the Vault neither changes nor destroys it.
func (v *Vault) OpenKey(ctx context.Context, arn string) (crypto.Signer, error) {
	return v.open(ctx, arn, func(*kms.Options) {})
}

func (v *Vault) open(ctx context.Context, arn string, options func(*kms.Options)) (crypto.Signer, error) {
	region, err := inRegion(arn)
	if err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	out, err := v.client.GetPublicKey(limited, &kms.GetPublicKeyInput{KeyId: &arn}, region, options)
	if err != nil {
		return nil, failure(limited, "GetPublicKey", arn, err)
	}
	public, err := x509.ParsePKIXPublicKey(out.PublicKey)
	if err != nil || out.KeyUsage != kmstypes.KeyUsageTypeSignVerify {
		return nil, fmt.Errorf("the KMS key %s is not one that signs: %w", arn, sign.ErrGone)
	}
	base := context.WithoutCancel(ctx)
	return &key{public: public, sign: func(digest []byte, algorithm kmstypes.SigningAlgorithmSpec) ([]byte, error) {
		ctx, cancel := context.WithTimeout(base, signTimeout)
		defer cancel()
		out, err := v.client.Sign(ctx,
			&kms.SignInput{KeyId: &arn, Message: digest, MessageType: kmstypes.MessageTypeDigest, SigningAlgorithm: algorithm}, region)
		if err != nil {
			return nil, failure(ctx, "Sign", arn, err)
		}
		return out.Signature, nil
	}}, nil
}

// RegionOf returns the region in the ARN of a KMS key. It fails for any other text, such as the ARN
// of an alias.
func RegionOf(arn string) (string, error) {
	parsed, err := awsarn.Parse(arn)
	if err != nil || parsed.Service != "kms" || parsed.Region == "" || !strings.HasPrefix(parsed.Resource, "key/") {
		return "", fmt.Errorf(
			"%.200q is not the ARN of a KMS key, such as arn:aws:kms:eu-west-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab", arn)
	}
	return parsed.Region, nil
}

// inRegion returns an option that sends a call to the region of a key. If arn is not the ARN of a
// key, inRegion fails with an error that wraps [sign.ErrGone].
func inRegion(arn string) (func(*kms.Options), error) {
	region, err := RegionOf(arn)
	if err != nil {
		return nil, fmt.Errorf("%s is not the ARN of a KMS key: %w", dataARN, sign.ErrGone)
	}
	return func(o *kms.Options) { o.Region = region }, nil
}

// Destroy implements [sign.Vault]. The key stops signing at once. For 30 days, people can restore
// it by CancelKeyDeletion and EnableKey.
func (v *Vault) Destroy(ctx context.Context, data map[string][]byte) error {
	arn := string(data[dataARN])
	region, err := inRegion(arn)
	if err != nil {
		return nil // arn is not the ARN of a key, so there is no key to delete
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err = v.client.ScheduleKeyDeletion(ctx,
		&kms.ScheduleKeyDeletionInput{KeyId: &arn, PendingWindowInDays: awssdk.Int32(deletionDays)}, region)
	if err = failure(ctx, "ScheduleKeyDeletion", arn, err); err != nil && !errors.Is(err, sign.ErrGone) {
		return err
	}
	return nil
}

// key is a private half in KMS.
type key struct {
	public crypto.PublicKey
	sign   func(digest []byte, algorithm kmstypes.SigningAlgorithmSpec) ([]byte, error)
}

// Public implements [crypto.Signer].
func (k *key) Public() crypto.PublicKey { return k.public }

// Sign implements [crypto.Signer] for digests of the key's algorithm. It ignores the reader,
// because KMS makes the random numbers. An ECDSA signature is ASN.1, as crypto.Signer requires;
// source: KMS API Reference, Sign. The call of KMS takes at most five seconds. If the call
// fails, the error is an [*Error].
func (k *key) Sign(_ io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	algorithm, err := signingAlgorithm(k.public, opts)
	if err != nil {
		return nil, err
	}
	return k.sign(digest, algorithm)
}

// specOf returns KMS's key spec for an algorithm. Source: KMS Developer Guide, "Key spec
// reference".
func specOf(algorithm v1alpha1.Algorithm) (kmstypes.KeySpec, error) {
	switch algorithm {
	case v1alpha1.RS256:
		return kmstypes.KeySpecRsa2048, nil
	case v1alpha1.ES256:
		return kmstypes.KeySpecEccNistP256, nil
	case v1alpha1.ES384:
		return kmstypes.KeySpecEccNistP384, nil
	}
	return "", fmt.Errorf("no KMS keys for the algorithm %q", algorithm)
}

// signingAlgorithm returns KMS's name for the algorithm (RS256, ES256 or ES384) that fits the type
// of the key. Source: RFC 7518 §3.3 and §3.4.
func signingAlgorithm(public crypto.PublicKey, opts crypto.SignerOpts) (kmstypes.SigningAlgorithmSpec, error) {
	_, pss := opts.(*rsa.PSSOptions)
	switch public := public.(type) {
	case *rsa.PublicKey:
		if opts.HashFunc() == crypto.SHA256 && !pss {
			return kmstypes.SigningAlgorithmSpecRsassaPkcs1V15Sha256, nil
		}
	case *ecdsa.PublicKey:
		switch {
		case public.Curve == elliptic.P256() && opts.HashFunc() == crypto.SHA256:
			return kmstypes.SigningAlgorithmSpecEcdsaSha256, nil
		case public.Curve == elliptic.P384() && opts.HashFunc() == crypto.SHA384:
			return kmstypes.SigningAlgorithmSpecEcdsaSha384, nil
		}
	}
	return "", fmt.Errorf("a key ring does not sign by %T with %v", public, opts.HashFunc())
}

package kustomization

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/spec"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/encryptedfile/masterkey"
	"github.com/lanyard-dev/lanyard/internal/identity"
	"github.com/lanyard-dev/lanyard/internal/keyservice"
	"github.com/lanyard-dev/lanyard/internal/kinds"
	"github.com/lanyard-dev/lanyard/internal/kustomize"
)

// Decryption decrypts the data keys of encrypted files, as the tenant. All fields except AWSIdentities
// are required.
type Decryption struct {
	// Service asks the clouds.
	Service *keyservice.Service
	// Rules turn the identity fields of spec.decryption into an identity or a refusal.
	Rules spec.Rules
	// Accounts reads ServiceAccounts and WorkloadIdentities, and gets proofs of their identity.
	Accounts auth.Accounts
	// AWSIdentities returns the AWS identities that a namespace may use; nil if the controller
	// supports no AWS identities.
	AWSIdentities func(namespace string) auth.Accounts
	// Cache stores tokens for the clouds, and Observer is called for each exchange.
	Cache    auth.Cache
	Observer auth.Observer
}

// decryptionPath is the path of the field in errors.
const decryptionPath = "spec.decryption"

// decryptionInput is what the decrypted manifests depend on, besides the files.
type decryptionInput struct {
	Spec *v1alpha1.Decryption
	// AccountUID and Attributes are those of the identity that decrypts; empty if there is none.
	AccountUID string
	Attributes map[string]string
}

// subject returns the subject on which the decryption of an object depends; zero if there is none. If
// no identity is named, the controller's own may be lent. At AWS, the subject is then the
// AWSClusterControllerIdentity that has the grant.
func (d Decryption) subject(o *v1alpha1.Kustomization) auth.Subject {
	decryption := kinds.DecryptionOf(o)
	if decryption == nil || !d.names(decryption.Fields) && !d.mayLend(o.Namespace) {
		return auth.Subject{}
	}
	return d.Rules.Named(decryption.Fields)
}

// names reports whether the object or the administrator's default names an identity.
func (d Decryption) names(fields spec.Fields) bool {
	return fields.ServiceAccountName != "" || fields.WorkloadIdentityName != "" || fields.IdentityRef != nil || d.Rules.DefaultServiceAccount != ""
}

// mayLend reports whether the controller's own identity may be lent to a namespace. With a selector,
// the namespace's labels decide later.
func (d Decryption) mayLend(namespace string) bool {
	return d.Rules.ControllerNamespaces.Selector != nil || d.Rules.ControllerNamespaces.Decide(namespace, nil).Allowed
}

// decide checks the fields of spec.decryption. An account that does not exist is no error yet: files
// may need none.
func (d Decryption) decide(ctx context.Context, o *v1alpha1.Kustomization) (decryptionInput, error) {
	field := o.Spec.Decryption
	if field == nil {
		return decryptionInput{}, nil
	}
	if field.Provider != v1alpha1.DecryptionSOPS {
		return decryptionInput{}, object.Invalid(decryptionPath+".provider", "write sops", "%.100q is no provider of decryption", field.Provider)
	}
	fields := kinds.DecryptionOf(o).Fields
	if _, err := spec.Resolve(ctx, fields, d.Rules); err != nil {
		return decryptionInput{}, err
	}
	input := decryptionInput{Spec: field}
	if subject := d.subject(o); d.names(fields) && !subject.IsZero() {
		if found, err := d.accounts(o, subject).Lookup(ctx, subject); err == nil {
			input.AccountUID, input.Attributes = found.UID, found.Attributes
		}
	}
	return input, nil
}

// accounts returns the accounts with which a subject proves itself. Of the AWS identities, these are
// the ones that the object's namespace may use.
func (d Decryption) accounts(o *v1alpha1.Kustomization, subject auth.Subject) auth.Accounts {
	if d.AWSIdentities != nil && slices.Contains(spec.AWSIdentityKinds(), subject.Kind()) {
		return d.AWSIdentities(o.Namespace)
	}
	return d.Accounts
}

// errNobody says why no cloud is asked: no identity is named, and none is lent to the namespace.
var errNobody = errors.New("nobody asks this cloud: set serviceAccountName, workloadIdentityName or identityRef in spec.decryption, or have the administrator " +
	"set apply.defaultDecryptionServiceAccount or lend the controller's own identity to the namespace (apply.controllerNamespaces)")

// dataKeys returns the data keys of encrypted files, and which master keys decrypted them. The reader
// reads the Secret with private keys.
func (d Decryption) dataKeys(
	ctx context.Context, reader client.Reader, o *v1alpha1.Kustomization, files []masterkey.File,
) (map[string][]byte, []keyservice.Use, error) {
	keys, err := readKeys(ctx, reader, o)
	if err != nil {
		return nil, nil, err
	}
	// Strangers choose how many keys a file has. So each cloud's identity is decided once.
	type answer struct {
		options []auth.Option
		subject string
		err     error
	}
	var mu sync.Mutex
	answers := map[string]answer{}
	return d.Service.DataKeys(ctx, files, keyservice.Caller{Keys: keys, At: func(ctx context.Context, cloud string) ([]auth.Option, string, error) {
		mu.Lock()
		defer mu.Unlock()
		known, ok := answers[cloud]
		if !ok {
			known.options, known.subject, known.err = d.at(ctx, o, cloud)
			answers[cloud] = known
		}
		return known.options, known.subject, known.err
	}})
}

// at returns the options of [auth.GetToken] at a cloud, and the subject that asks there. The error says
// why nobody may ask.
func (d Decryption) at(ctx context.Context, o *v1alpha1.Kustomization, cloud string) (options []auth.Option, subject string, err error) {
	fields := kinds.DecryptionOf(o).Fields
	chosen, err := spec.ResolveAt(ctx, cloud, fields, d.Rules)
	if _, refused := errors.AsType[*spec.Refusal](err); refused && auth.CodeOf(err) == auth.CodeNotGranted && !d.names(fields) {
		return nil, "", errNobody
	}
	if err != nil {
		return nil, "", err
	}
	lent := chosen.Subject
	if lent == auth.Controller() && cloud == v1alpha1.ProviderAWS {
		lent = d.subject(o)
	}
	if account, err := d.accounts(o, lent).Lookup(ctx, lent); err == nil {
		identity.LogUse(ctx, o.Namespace, account)
	}
	options = []auth.Option{
		chosen.Option(d.accounts(o, chosen.Subject)), auth.WithTenant(o.Namespace),
		auth.WithCache(d.Cache, auth.InvolvedObject{Kind: v1alpha1.KustomizationKind, Namespace: o.Namespace, Name: o.Name, Operation: "decrypt"}),
		auth.WithObserver(d.Observer),
	}
	if object.RetryNow(o) {
		options = append(options, auth.WithRetryNow())
	}
	return options, chosen.Subject.String(), nil
}

const (
	// maxShownFiles and maxShownKeys bound what status.decryption lists.
	maxShownFiles, maxShownKeys = 10, 3
	// maxShownName bounds the name of a file in the status, in bytes.
	maxShownName = 200
)

// statusOf returns status.decryption for the master keys that were used; nil if there are none. The uses
// are sorted by file.
func statusOf(uses []keyservice.Use) *v1alpha1.DecryptionStatus {
	if len(uses) == 0 {
		return nil
	}
	status := &v1alpha1.DecryptionStatus{}
	last := ""
	for i, use := range uses {
		if i == 0 || use.File != last {
			last = use.File
			if len(status.Files) == maxShownFiles {
				status.OtherFiles++
				continue
			}
			status.Files = append(status.Files, v1alpha1.DecryptedFile{Name: shortened(use.File)})
		}
		shown := &status.Files[len(status.Files)-1]
		if status.OtherFiles == 0 && len(shown.Keys) < maxShownKeys {
			shown.Keys = append(shown.Keys, v1alpha1.DecryptionKey{Name: use.Key, Subject: use.Subject})
		}
	}
	return status
}

// shortened returns a file's name in valid UTF-8 and within the bound.
func shortened(name string) string {
	if len(name) > maxShownName {
		name = name[:maxShownName] + "…"
	}
	return strings.ToValidUTF8(name, "")
}

// readKeys reads the Secret of spec.decryption.secretRef with the program's own right; nil if there is
// none.
func readKeys(ctx context.Context, reader client.Reader, o *v1alpha1.Kustomization) (*keyservice.Keys, error) {
	const field = decryptionPath + ".secretRef"
	ref := o.Spec.Decryption.SecretRef
	if ref == nil {
		return nil, nil //nolint:nilnil // no Secret is named
	}
	secret := &corev1.Secret{}
	err := reader.Get(ctx, client.ObjectKey{Namespace: o.Namespace, Name: ref.Name}, secret)
	if apierrors.IsNotFound(err) {
		return nil, &object.SecretError{Field: field, Name: ref.Name, Fix: "create it, or correct the name", Err: errors.New("it does not exist")}
	}
	if err != nil {
		return nil, object.Forbidden(err, "get", "secrets", o.Namespace)
	}
	keys, err := keyservice.ParseKeys(secret.Data)
	if err != nil {
		return nil, &object.SecretError{Field: field, Name: ref.Name, Fix: "correct the key", Err: err}
	}
	return keys, nil
}

// unencrypted returns the warning about Secrets that are not encrypted; zero if there are none.
func unencrypted(built kustomize.Result) object.Warning {
	if built.UnencryptedCount == 0 {
		return object.Warning{}
	}
	names := strings.Join(built.Unencrypted, ", ")
	if more := built.UnencryptedCount - len(built.Unencrypted); more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	return object.Warning{
		Reason: meta.ReasonUnencryptedSecrets,
		Note:   names + ": not encrypted in the artifact; replace the values, and encrypt the files with sops",
	}
}

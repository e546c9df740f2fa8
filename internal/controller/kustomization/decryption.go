package kustomization

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lanyard-dev/lanyard/api/meta"
	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/spec"
	"github.com/lanyard-dev/lanyard/internal/controller/object"
	"github.com/lanyard-dev/lanyard/internal/encryptedfile/masterkey"
	"github.com/lanyard-dev/lanyard/internal/keyservice"
	"github.com/lanyard-dev/lanyard/internal/kustomize"
)

// Decryption decrypts the data keys of encrypted files, as the tenant. All fields are required.
type Decryption struct {
	// Service asks the clouds.
	Service *keyservice.Service
	// Rules turn the identity fields of spec.decryption into an identity or a refusal.
	Rules spec.Rules
	// Accounts reads ServiceAccounts and gets proofs of their identity.
	Accounts auth.Accounts
	// Cache stores tokens for the clouds, and Observer is called for each exchange.
	Cache    auth.Cache
	Observer auth.Observer
}

// decryptionPath is the path of the field in errors.
const decryptionPath = "spec.decryption"

// decryptionInput is what the decrypted manifests depend on, besides the files.
type decryptionInput struct {
	Spec *v1alpha1.Decryption
	// AccountUID and Attributes are those of the account; empty if there is none.
	AccountUID string
	Attributes map[string]string
}

// fields returns the identity fields of spec.decryption. There is no field for the cloud: each file
// names its keys.
func (Decryption) fields(o *v1alpha1.Kustomization) spec.Fields {
	d := o.Spec.Decryption
	fields := spec.Fields{Namespace: o.Namespace, Path: decryptionPath, ProviderLater: true, ServiceAccountName: d.ServiceAccountName}
	if d.SecretRef != nil {
		fields.SecretRef = &d.SecretRef.Name
	}
	return fields
}

// account returns the account that decrypts; zero if there is none.
func (d Decryption) account(o *v1alpha1.Kustomization) auth.Subject {
	if o.Spec.Decryption == nil {
		return auth.Subject{}
	}
	return d.Rules.Named(d.fields(o))
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
	if _, err := spec.Resolve(ctx, d.fields(o), d.Rules); err != nil {
		return decryptionInput{}, err
	}
	input := decryptionInput{Spec: field}
	if account := d.account(o); !account.IsZero() {
		if found, err := d.Accounts.Lookup(ctx, account); err == nil {
			input.AccountUID, input.Attributes = found.UID, found.Attributes
		}
	}
	return input, nil
}

// errNobody says why no cloud is asked. The controller's own identity is never used.
var errNobody = errors.New("nobody asks this cloud: set spec.decryption.serviceAccountName, or have the administrator set apply.defaultDecryptionServiceAccount")

// dataKeys returns the data keys of encrypted files. The reader reads the Secret with private keys.
func (d Decryption) dataKeys(ctx context.Context, reader client.Reader, o *v1alpha1.Kustomization, files []masterkey.File) (map[string][]byte, error) {
	keys, err := readKeys(ctx, reader, o)
	if err != nil {
		return nil, err
	}
	return d.Service.DataKeys(ctx, files, keyservice.Caller{Keys: keys, At: func(ctx context.Context, cloud string) ([]auth.Option, string, error) {
		if d.account(o).IsZero() {
			return nil, "", errNobody
		}
		identity, err := spec.ResolveAt(ctx, cloud, d.fields(o), d.Rules)
		if err != nil {
			return nil, "", err
		}
		options := []auth.Option{
			identity.Option(d.Accounts), auth.WithTenant(o.Namespace),
			auth.WithCache(d.Cache, auth.InvolvedObject{Kind: v1alpha1.KustomizationKind, Namespace: o.Namespace, Name: o.Name, Operation: "decrypt"}),
			auth.WithObserver(d.Observer),
		}
		if object.RetryNow(o) {
			options = append(options, auth.WithRetryNow())
		}
		return options, identity.Subject.String(), nil
	}})
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

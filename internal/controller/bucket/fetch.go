package bucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/spec"
	"github.com/lanyard-dev/lanyard/internal/artifact/archive"
	"github.com/lanyard-dev/lanyard/internal/artifact/bucket"
	"github.com/lanyard-dev/lanyard/internal/artifact/store"
	"github.com/lanyard-dev/lanyard/internal/controller/source"
)

// Fetch implements source.Kind: it makes the status name the artifact that the plan asks for. Who it was fetched as stands in the
// status even if the service refuses.
func (k kind) Fetch(ctx context.Context, o *v1alpha1.Bucket, p plan, call source.Call) error {
	if p.service == nil {
		return fmt.Errorf("provider %q is in the rules and has no service", o.Spec.Provider)
	}
	if err := checkLent(call, p.place); err != nil {
		o.Status.Identity = nil // it was refused
		return err
	}
	conn, err := k.access.Connect(ctx, call, p.place.Host)
	if err != nil {
		return err
	}
	defer conn.Close()
	return source.Use(k.access, conn, &o.Status.Status,
		func(minRemaining time.Duration) (credential, error) {
			return k.credential(ctx, call, conn, p, minRemaining)
		},
		func(c credential) error { return k.attempt(ctx, o, p, call, conn, c) },
		func(err error) bool { return bucket.CodeOf(err) == bucket.CodeUnauthorized })
}

// checkLent keeps the controller's identity, which is only lent to the tenant, off hosts that are no cloud's: what is signed there
// holds the session's token.
func checkLent(call source.Call, place Place) error {
	if !place.Listed || call.Identity.Subject.Kind() != auth.KindController {
		return nil
	}
	return &auth.Error{
		Stage: auth.StageExchange, Code: auth.CodeEndpointRefused,
		Fix: "set spec.serviceAccountName, or leave out spec.endpoint",
		Err: errors.New("spec.endpoint: it is none of Amazon S3's, and the controller's identity is shown to no other"),
	}
}

// attempt fetches as c.
func (k kind) attempt(ctx context.Context, o *v1alpha1.Bucket, p plan, call source.Call, conn *source.Connection, c credential) error {
	storage, err := p.service.Open(ctx, Request{
		Place: p.place, Bucket: p.bucket, Insecure: call.Identity.Insecure, Transport: conn, Mint: c.mint, Keys: c.keys,
	})
	if err != nil {
		return err
	}
	artifact, err := k.pull(ctx, o, p, call, c, storage)
	if err != nil {
		return fmt.Errorf("bucket %s: %w", p.bucket, nameLimit(err))
	}
	o.Status.Artifact = artifact
	return nil
}

// pull lists the bucket, and stores an artifact if it differs from the one in the status, or if that was read as somebody else.
func (k kind) pull(
	ctx context.Context, o *v1alpha1.Bucket, p plan, call source.Call, c credential, storage bucket.Storage,
) (*v1alpha1.Artifact, error) {
	index, err := bucket.List(ctx, storage, p.source, bucket.Options{
		Reader: c.reader(call.Identity), Prefix: p.prefix, Ignore: p.ignore, Limits: k.limits,
	})
	if err != nil {
		return nil, err
	}
	if index.Len() == 0 {
		// Whoever applies an artifact and removes what is no longer in it would remove everything.
		return nil, &bucket.Error{
			Code: bucket.CodeNotFound, Field: "spec.prefix", Fix: "correct spec.prefix and spec.ignore, or put objects into the bucket",
			Err: fmt.Errorf("there is no object to fetch; %d are left out by spec.ignore", index.Ignored),
		}
	}
	if p.stored && o.Status.Artifact != nil && o.Status.Artifact.Revision == index.Revision() && k.continues(call.Owner, o.Status.Artifact, index) {
		return k.artifacts.Renew(call.Owner, o.Status.Artifact)
	}
	artifact, err := k.update(ctx, o, p, call, storage, index)
	if err != nil {
		return nil, err
	}
	return artifact, k.artifacts.Annotate(ctx, call.Owner, artifact, index.Encode)
}

// continues reports whether the artifact was read as the same identity as the index, on the same way.
func (k kind) continues(owner store.Object, artifact *v1alpha1.Artifact, index *bucket.Index) bool {
	note, err := k.artifacts.Store.Note(owner, artifact.Digest)
	if err != nil {
		return false
	}
	defer note.Close() //nolint:errcheck // read only
	return index.Continues(note)
}

// update makes the artifact, out of the one in the status as far as that is still current.
func (k kind) update(
	ctx context.Context, o *v1alpha1.Bucket, p plan, call source.Call, storage bucket.Storage, index *bucket.Index,
) (*v1alpha1.Artifact, error) {
	if p.stored && o.Status.Artifact != nil {
		previous, closePrevious, err := k.previous(call.Owner, o.Status.Artifact.Digest)
		if err == nil {
			defer closePrevious()
			artifact, err := k.write(ctx, o, call, storage, index, previous)
			if !errors.Is(err, bucket.ErrPrevious) {
				return artifact, err
			}
		}
		log.FromContext(ctx).Info("the artifact in the store cannot be updated, and is fetched whole", "digest", o.Status.Artifact.Digest)
	}
	return k.write(ctx, o, call, storage, index, nil)
}

// previous opens an artifact and its index.
func (k kind) previous(owner store.Object, digest string) (previous *bucket.Previous, closeAll func(), err error) {
	index, err := k.artifacts.Store.Note(owner, digest)
	if err != nil {
		return nil, nil, err
	}
	content, err := k.artifacts.Store.Open(owner, digest)
	if err != nil {
		_ = index.Close()
		return nil, nil, err
	}
	return &bucket.Previous{Index: index, Archive: content}, func() {
		_ = index.Close()
		_ = content.Close()
	}, nil
}

func (k kind) write(
	ctx context.Context, o *v1alpha1.Bucket, call source.Call, storage bucket.Storage, index *bucket.Index, previous *bucket.Previous,
) (*v1alpha1.Artifact, error) {
	return k.artifacts.Put(ctx, call.Owner, o.Status.Artifact, index.Revision(), func(w io.Writer) error {
		done, err := bucket.Write(ctx, storage, index, previous, w, k.limits)
		if err == nil {
			log.FromContext(ctx).Info("fetched", "objects", done.Fetched, "unchanged", done.Kept)
		}
		return err
	})
}

// nameLimit adds to the refusal of a bucket's size which flag it comes from: the reader of buckets does not know.
func nameLimit(err error) error {
	if archive.ReasonOf(err) == archive.ReasonTooLarge {
		return fmt.Errorf("%w (--artifact-max-decompressed-size)", err)
	}
	return err
}

// credential is what the service is shown.
type credential struct {
	source.Login

	mint []auth.Option // of auth.GetToken; nil when it is not minted
	keys *Keys         // nil for none
}

// reader says as whom objects are read with the credential, and on which way: what came by plain HTTP, or through a proxy, may be
// anybody's. A session's or a password's renewal makes no other reader.
func (c credential) reader(identity spec.Identity) string {
	reader := fmt.Sprintf("%q %t %q %q", identity.STSEndpoint, identity.Insecure, identity.CertSecretName, identity.ProxySecretName)
	if c.Identity != nil {
		reader += fmt.Sprintf(" %q %q %q", c.Identity.Provider, c.Identity.Subject, c.Identity.CloudIdentity)
	}
	if c.keys != nil {
		reader += fmt.Sprintf(" %q", c.keys.Access)
	}
	return reader
}

// Keys of the Secret that spec.secretRef names, which are Flux's.
const (
	keyAccess = "accesskey"
	keySecret = "secretkey"
)

// credential gets what the call's identity comes to. With minRemaining a minted credential lives at least so long.
func (k kind) credential(ctx context.Context, call source.Call, conn *source.Connection, p plan, minRemaining time.Duration) (credential, error) {
	switch call.Identity.Source {
	case spec.Anonymous:
		return credential{}, nil
	case spec.StaticSecret:
		return k.fromSecret(ctx, call)
	case spec.Cloud, spec.STS:
		login, err := k.access.Mint(ctx, call, conn, append([]auth.Option{auth.WithMinRemaining(minRemaining)}, p.place.Token...)...)
		if err != nil {
			return credential{}, err
		}
		// The cache has it now, and gives it to the service's client for each of its requests.
		return credential{Login: login, mint: append(k.access.Options(call, conn), p.place.Token...)}, nil
	default:
		return credential{}, fmt.Errorf("credentials of the source %q are none of a bucket's", call.Identity.Source)
	}
}

// fromSecret reads spec.secretRef.
func (k kind) fromSecret(ctx context.Context, call source.Call) (credential, error) {
	const field = "spec.secretRef"
	namespace, name := call.Object.Namespace, call.Identity.SecretName
	secret, err := k.access.Secret(ctx, field, namespace, name)
	if err != nil {
		return credential{}, err
	}
	access, key := string(secret.Data[keyAccess]), secret.Data[keySecret]
	if access == "" || len(key) == 0 {
		return credential{}, &source.SecretError{
			Field: field, Name: name, Fix: "set " + keyAccess + " and " + keySecret, Err: errors.New("it lacks the keys of a user"),
		}
	}
	return credential{Login: source.StoredIn(namespace, name), keys: &Keys{Access: access, Secret: auth.NewSecret(string(key))}}, nil
}

package bucket

import (
	"context"
	"errors"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/lanyard-dev/lanyard/api/toolkit/v1alpha1"
	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/spec"
	"github.com/lanyard-dev/lanyard/internal/artifact/archive"
	"github.com/lanyard-dev/lanyard/internal/artifact/objectstore"
	"github.com/lanyard-dev/lanyard/internal/artifact/origin"
	"github.com/lanyard-dev/lanyard/internal/clouds/buckets"
	"github.com/lanyard-dev/lanyard/internal/controller/access"
	"github.com/lanyard-dev/lanyard/internal/controller/source"
)

// Fetch implements source.Kind. It fetches the artifact of the plan and writes the artifact into
// the status.
func (k kind) Fetch(ctx context.Context, o *v1alpha1.Bucket, p plan, call source.Call) error {
	conn, err := k.access.Connect(ctx, call.Call, p.place.Host)
	if err != nil {
		return err
	}
	defer conn.Close()
	return k.access.Use(ctx, call.Call, conn, &o.Status.FetchStatus, p.credentials(), func(login access.Login) error {
		artifact, err := k.pull(ctx, o.Status.Artifact, p, call, conn, login)
		if err == nil {
			o.Status.Artifact = artifact
		}
		return err
	})
}

// pull has the inputs for one fetch of a bucket with one login.
type pull struct {
	kind
	plan
	source.Call

	storage objectstore.Storage
	reader  string             // identifies this fetch's login and connection; made by func reader
	old     *v1alpha1.Artifact // the artifact in the status; nil for none
}

// pull opens the bucket with the login, and returns the artifact for the status.
func (k kind) pull(
	ctx context.Context, old *v1alpha1.Artifact, p plan, call source.Call, conn *access.Connection, login access.Login,
) (*v1alpha1.Artifact, error) {
	request := buckets.Request{
		Place: p.place, Bucket: p.bucket, Insecure: call.Identity.Insecure, Transport: conn.As(login), Caller: access.Caller(conn, login),
	}
	if keys := login.Credential.Basic; keys != nil {
		request.Keys = &buckets.Keys{ID: keys.User, Secret: keys.Password}
	}
	if login.Token != nil {
		// The token is already in the cache. The service's client gets it from there for each
		// request.
		request.Mint = append(k.access.Options(call.Call, conn), p.place.Token...)
	}
	storage, err := p.service.Open(ctx, request)
	if err != nil {
		return nil, err
	}
	f := pull{kind: k, plan: p, Call: call, storage: storage, reader: reader(call.Identity, login), old: old}
	artifact, err := f.run(ctx)
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", p.bucket, nameLimit(err))
	}
	return artifact, nil
}

// run lists the bucket. It keeps the old artifact if all of these are true:
//   - The store still has the artifact.
//   - The source and the list of objects have not changed.
//   - The login and the connection have not changed.
//
// Otherwise, run stores a new artifact.
func (f pull) run(ctx context.Context) (*v1alpha1.Artifact, error) {
	index, err := objectstore.List(ctx, f.storage, f.source, objectstore.Options{
		Reader: f.reader, Prefix: f.prefix, Ignore: f.ignore, MaxBytes: f.maxSize,
	})
	if err != nil {
		return nil, err
	}
	if index.Len() == 0 {
		// An empty artifact is refused. A program that applies artifacts and prunes removed objects
		// would prune everything.
		return nil, &origin.Error{
			Code: origin.CodeNotFound, Field: "spec.prefix", Fix: "correct spec.prefix and spec.ignore, or put objects into the bucket",
			Err: fmt.Errorf("there is no object to fetch; spec.ignore leaves out %d", index.Ignored),
		}
	}
	if f.Stored && f.old.Revision == index.Revision() && f.continues(index) {
		return f.artifacts.Renew(f.Owner, f.old)
	}
	artifact, err := f.update(ctx, index)
	if err != nil {
		return nil, err
	}
	return artifact, f.artifacts.Annotate(ctx, f.Owner, artifact, index.Encode)
}

// continues reports whether the index that is stored with the old artifact has the same source,
// login and connection as the new index.
func (f pull) continues(index *objectstore.Index) bool {
	note, err := f.artifacts.Store.Note(f.Owner, f.old.Digest)
	if err != nil {
		return false
	}
	defer note.Close() //nolint:errcheck // read only
	return index.Continues(note)
}

// update makes the artifact. It reuses those parts of the old artifact that are still current.
func (f pull) update(ctx context.Context, index *objectstore.Index) (*v1alpha1.Artifact, error) {
	if f.Stored {
		previous, closePrevious, err := f.previous()
		if err == nil {
			defer closePrevious()
			artifact, err := f.write(ctx, index, previous)
			if !errors.Is(err, objectstore.ErrPrevious) {
				return artifact, err
			}
		}
		log.FromContext(ctx).Info("the artifact in the store cannot be updated, and is fetched whole", "digest", f.old.Digest)
	}
	return f.write(ctx, index, nil)
}

// previous opens the old artifact and its index.
func (f pull) previous() (previous *objectstore.Previous, closeAll func(), err error) {
	index, err := f.artifacts.Store.Note(f.Owner, f.old.Digest)
	if err != nil {
		return nil, nil, err
	}
	content, err := f.artifacts.Store.Open(f.Owner, f.old.Digest)
	if err != nil {
		_ = index.Close()
		return nil, nil, err
	}
	return &objectstore.Previous{Index: index, Archive: content}, func() {
		_ = index.Close()
		_ = content.Close()
	}, nil
}

func (f pull) write(ctx context.Context, index *objectstore.Index, previous *objectstore.Previous) (*v1alpha1.Artifact, error) {
	return f.artifacts.Put(ctx, f.Owner, f.old, index.Revision(), func(w io.Writer) error {
		done, err := objectstore.Write(ctx, f.storage, index, previous, w, f.maxSize)
		if err == nil {
			log.FromContext(ctx).Info("fetched", "objects", done.Fetched, "unchanged", done.Kept)
		}
		return err
	})
}

// nameLimit completes the error for a bucket that is too large: it names the flag that sets the
// limit. The flag belongs to the program, so package objectstore cannot name it.
func nameLimit(err error) error {
	if archive.ReasonOf(err) == archive.ReasonTooLarge {
		return fmt.Errorf("%w (--artifact-max-decompressed-size)", err)
	}
	return err
}

// reader returns a text that identifies the login and the connection by which objects are read.
// Anybody may have changed content that came by plain HTTP or through a proxy. Such content must
// not be reused over another connection, so the text includes the connection. A renewed session or
// password does not change the text.
func reader(identity spec.Identity, login access.Login) string {
	reader := fmt.Sprintf("%q %t %q %q", identity.STSEndpoint, identity.Insecure, identity.CertSecretName, identity.ProxySecretName)
	if login.Identity != nil {
		reader += fmt.Sprintf(" %q %q %q", login.Identity.Provider, login.Identity.Subject, login.Identity.CloudIdentity)
	}
	if login.Credential.Basic != nil {
		reader += fmt.Sprintf(" %q", login.Credential.Basic.User)
	}
	return reader
}

// Data keys of the Secret that spec.secretRef names. Flux uses the same data keys.
const (
	keyAccess = "accesskey"
	keySecret = "secretkey"
)

// credentials describes the credentials for the plan's bucket, and how to find out that they were
// rejected.
func (p plan) credentials() access.Service {
	return access.Service{
		Name:       "bucket",
		ReadSecret: readSecret,
		Purpose: func(source spec.Source) ([]auth.Option, bool) {
			return p.place.Token, source == spec.Cloud || source == spec.STS
		},
		Rejected: func(err error) bool { return origin.CodeOf(err) == origin.CodeUnauthorized },
	}
}

// readSecret returns the access key and secret key from the Secret of spec.secretRef.
func readSecret(secret *corev1.Secret) (shown access.Credential, fix string, err error) {
	user, key := string(secret.Data[keyAccess]), secret.Data[keySecret]
	if user == "" || len(key) == 0 {
		return access.Credential{}, "set " + keyAccess + " and " + keySecret, errors.New("it lacks the keys of a user")
	}
	return access.Credential{Basic: &access.Basic{User: user, Password: auth.NewSecret(string(key))}}, "", nil
}

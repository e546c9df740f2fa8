package keyservice

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"

	"github.com/getsops/sops/v3/shamir"
	"golang.org/x/sync/errgroup"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/providers"
	"github.com/lanyard-dev/lanyard/auth/transport"
	"github.com/lanyard-dev/lanyard/internal/encryptedfile/masterkey"
)

// Service decrypts data keys. It is safe for concurrent use. All fields are required.
type Service struct {
	// Clouds get the tokens for the clouds' key services.
	Clouds *providers.Set
	// Transports has the connections to key services. Its dial function must refuse the addresses
	// that tenants may not reach.
	Transports *transport.Pool
}

// Caller says with whose keys and identities data keys are decrypted.
type Caller struct {
	// Keys are the keys of the tenant's Secret; nil for none.
	Keys *Keys
	// At returns the options of [auth.GetToken] at a cloud (aws, azure or gcp), and the subject to
	// show in errors. Its error says why nobody may ask this cloud.
	At func(ctx context.Context, cloud string) (options []auth.Option, subject string, err error)
}

// concurrentFiles is how many files of one build are decrypted at once.
const concurrentFiles = 4

// Use says that a master key decrypted the data key of a file, or a part of it.
type Use struct {
	// File is the file's name, and Key is the type and the name of the master key.
	File, Key string
	// Subject is who asked a key service; empty for a key of the tenant's Secret.
	Subject string
}

// DataKeys returns the data keys of all files, by the files' names, and which master keys decrypted
// them. The uses are sorted by file. An error is an [*Error] if a file cannot be decrypted, or the cause
// of ctx.
//
// For each key group, the keys are tried until one of them decrypts its part. Keys of a Secret are
// tried first. No group is tried once there are enough parts.
func (s *Service) DataKeys(ctx context.Context, files []masterkey.File, caller Caller) (map[string][]byte, []Use, error) {
	var (
		mu   sync.Mutex
		keys = map[string][]byte{}
		uses []Use
	)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(concurrentFiles)
	for _, file := range files {
		group.Go(func() error {
			key, used, err := s.dataKey(ctx, file, caller)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			keys[file.Name], uses = key, append(uses, used...)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, nil, err
	}
	slices.SortStableFunc(uses, func(a, b Use) int { return cmp.Compare(a.File, b.File) })
	return keys, uses, nil
}

// dataKey returns the data key of one file, and which master keys decrypted it.
func (s *Service) dataKey(ctx context.Context, file masterkey.File, caller Caller) ([]byte, []Use, error) {
	failure := &Error{File: file.Name, Fix: "grant the key to the identity of spec.decryption, or encrypt the file for a key that it may use"}
	if err := file.Check(); err != nil {
		failure.Keys = []KeyError{{Key: "the file", Err: err}}
		return nil, nil, failure
	}
	var parts [][]byte
	var uses []Use
	for _, group := range file.Groups {
		part, use, failed := s.part(ctx, file, group, caller)
		if part == nil {
			failure.Keys = append(failure.Keys, failed...)
			if err := context.Cause(ctx); err != nil {
				return nil, nil, errors.Join(err, failure)
			}
			continue
		}
		uses = append(uses, use)
		if len(file.Groups) == 1 {
			return part, uses, nil
		}
		if parts = append(parts, part); len(parts) == file.Threshold {
			key, err := combine(parts, failure)
			return key, uses, err
		}
	}
	return nil, nil, failure
}

// combine returns the data key of which key groups have decrypted the parts.
func combine(parts [][]byte, failure *Error) ([]byte, error) {
	key, err := shamir.Combine(parts)
	if err != nil || len(key) != masterkey.DataKeySize {
		failure.Keys = append(failure.Keys, KeyError{Key: "the key groups", Err: errors.New("what they decrypt are no parts of one data key")})
		return nil, failure
	}
	return key, nil
}

// part returns what the first possible key of a group decrypts, or nil and the failures of all keys.
func (s *Service) part(ctx context.Context, file masterkey.File, group masterkey.Group, caller Caller) ([]byte, Use, []KeyError) {
	var failed []KeyError
	for _, key := range inOrder(group) {
		if ctx.Err() != nil {
			break
		}
		part, subject, err := s.decrypt(ctx, key, caller)
		if err == nil && len(part) != file.PartSize() {
			err = errors.New("what it decrypts is no data key")
		}
		if err == nil {
			return part, Use{file.Name, key.String(), subject}, nil
		}
		failed = append(failed, KeyError{Key: key.String(), Subject: subject, Err: err})
	}
	return nil, Use{}, failed
}

// inOrder returns the keys in the order in which they are tried, as SOPS does: age, OpenPGP, and the
// others as the file has them.
func inOrder(group masterkey.Group) masterkey.Group {
	rank := func(key masterkey.Key) int {
		switch {
		case key.Age != nil:
			return 0
		case key.OpenPGP != nil:
			return 1
		default:
			return 2
		}
	}
	group = slices.Clone(group)
	slices.SortStableFunc(group, func(a, b masterkey.Key) int { return cmp.Compare(rank(a), rank(b)) })
	return group
}

// decrypt decrypts one encrypted data key. The subject is who asked a key service.
func (s *Service) decrypt(ctx context.Context, key masterkey.Key, caller Caller) (part []byte, subject string, err error) {
	defer func() { // a stranger wrote the encrypted data key
		if recover() != nil {
			part, err = nil, errors.New("the encrypted data key is damaged")
		}
	}()
	switch {
	case key.Age != nil:
		part, err = caller.Keys.decryptAge(key)
	case key.OpenPGP != nil:
		part, err = caller.Keys.decryptOpenPGP(key)
	case key.AWS != nil:
		return s.atCloud(ctx, providerAWS, key, caller, s.decryptAWS)
	case key.Azure != nil:
		return s.atCloud(ctx, providerAzure, key, caller, s.decryptAzure)
	case key.GCP != nil:
		return s.atCloud(ctx, providerGCP, key, caller, s.decryptGCP)
	default:
		err = errors.New("keys of this type are not supported; use age, OpenPGP, AWS KMS, Azure Key Vault or Google Cloud KMS")
	}
	return part, "", err
}

// The clouds, as spec.provider of other kinds names them.
const (
	providerAWS   = "aws"
	providerAzure = "azure"
	providerGCP   = "gcp"
)

// atCloud decrypts with a cloud's key service.
func (s *Service) atCloud(
	ctx context.Context, cloud string, key masterkey.Key, caller Caller,
	decrypt func(ctx context.Context, key masterkey.Key, options []auth.Option) ([]byte, error),
) (part []byte, subject string, err error) {
	options, subject, err := caller.At(ctx, cloud)
	if err != nil {
		return nil, subject, err
	}
	part, err = decrypt(ctx, key, options)
	return part, subject, err
}

// decode decodes an encrypted data key in base64.
func decode(encoding *base64.Encoding, text string) ([]byte, error) {
	decoded, err := encoding.DecodeString(text)
	if err != nil || len(decoded) == 0 {
		return nil, errors.New("the encrypted data key is not base64")
	}
	return decoded, nil
}

// client returns an HTTP client for a host of a key service.
func (s *Service) client(host string) *http.Client {
	target := target(host)
	return &http.Client{
		Transport: bounded{s.Transports.Host(target), host},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return fmt.Errorf("the key service redirects, and no credential follows")
		},
	}
}

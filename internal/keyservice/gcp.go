package keyservice

import (
	"context"
	"encoding/base64"
	"errors"
	"time"

	"golang.org/x/oauth2"
	cloudkms "google.golang.org/api/cloudkms/v1"
	"google.golang.org/api/googleapi"
	"google.golang.org/api/option"

	"github.com/lanyard-dev/lanyard/auth"
	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/auth/gcp"
	"github.com/lanyard-dev/lanyard/internal/encryptedfile/masterkey"
)

// decryptGCP decrypts with Google Cloud KMS. Source: Cloud KMS REST reference, cryptoKeys.decrypt.
func (s *Service) decryptGCP(ctx context.Context, key masterkey.Key, options []auth.Option) ([]byte, error) {
	named, err := endpoint.ParseCloudKMSKey(key.GCP.ResourceID)
	if err != nil {
		return nil, err
	}
	encrypted, err := decode(base64.StdEncoding, key.Encrypted)
	if err != nil {
		return nil, err
	}
	host := s.Clouds.GCP.Universe().CloudKMSHost()
	client := s.client(host)
	client.Transport = &oauth2.Transport{Source: gcp.NewTokenSource(ctx, s.Clouds.GCP, options...), Base: client.Transport}
	service, err := cloudkms.NewService(ctx, option.WithHTTPClient(client), option.WithEndpoint("https://"+host+"/"))
	if err != nil {
		return nil, err
	}
	request := &cloudkms.DecryptRequest{Ciphertext: base64.StdEncoding.EncodeToString(encrypted)}
	call := service.Projects.Locations.KeyRings.CryptoKeys.Decrypt(named.String(), request).Context(ctx)
	answer, err := call.Do()
	for try := 1; try < attempts && isBusy(err) && pause(ctx, try); try++ {
		answer, err = call.Do()
	}
	if err != nil {
		return nil, gcpError(err)
	}
	return decode(base64.StdEncoding, answer.Plaintext)
}

// isBusy reports whether Cloud KMS asks for another attempt. Google's client, unlike those of AWS and
// Azure, makes only one.
func isBusy(err error) bool {
	_, answered := errors.AsType[*googleapi.Error](err)
	return answered && isTemporary(gcpError(err))
}

// pause waits before another attempt. It returns false if ctx ends.
func pause(ctx context.Context, try int) bool {
	timer := time.NewTimer(time.Duration(try) * time.Second)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// gcpError converts an error of Google's client.
func gcpError(err error) error {
	if refused, ok := errors.AsType[*auth.Error](err); ok {
		return refused // without the words of the client around it
	}
	failure := &serviceError{service: "Google Cloud KMS"}
	if answer, ok := errors.AsType[*googleapi.Error](err); ok {
		failure.status, failure.message = answer.Code, answer.Message
		return failure
	}
	failure.err = err
	return failure
}

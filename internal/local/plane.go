package local

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strings"

	"github.com/fsouza/fake-gcs-server/fakestorage"

	"github.com/lanyard-dev/lanyard/auth/endpoint"
	"github.com/lanyard-dev/lanyard/cloudtest"
	"github.com/lanyard-dev/lanyard/cloudtest/aws"
	"github.com/lanyard-dev/lanyard/cloudtest/azure"
	"github.com/lanyard-dev/lanyard/cloudtest/gcp"
	"github.com/lanyard-dev/lanyard/internal/artifact/oci"
)

// planes are the data planes of a cloud: the content of its registries and buckets. The cloud
// checks permissions before a request reaches a data plane.
type planes struct {
	registries *registries
	storage    *fakestorage.Server
	buckets    []string // of Google Cloud Storage
	azure      []string // hosts of Azure's registries
}

// newPlanes makes empty data planes and hands them to the cloud.
func newPlanes(cloud *cloudtest.Cloud, cfg cloudtest.Config, registries *registries) (*planes, error) {
	p := &planes{registries: registries}
	var err error
	// No listener: the cloud calls the storage through its handler.
	if p.storage, err = fakestorage.NewServerWithOptions(fakestorage.Options{NoListener: true}); err != nil {
		return nil, fmt.Errorf("make the storage of Google Cloud: %w", err)
	}
	for _, project := range cfg.GCP.Projects {
		for _, bucket := range project.Buckets {
			p.buckets = append(p.buckets, bucket.Name)
			p.storage.CreateBucketWithOpts(fakestorage.CreateBucketOpts{Name: bucket.Name})
		}
	}
	for _, tenant := range cfg.Azure.Tenants {
		for _, registry := range tenant.Registries {
			p.azure = append(p.azure, registry.Name+".azurecr.io")
		}
	}
	cloud.AWS().ServeRegistry(func(r aws.Registry) http.Handler { return registries.handler(awsPlane(r.Account, r.Region)) })
	cloud.Azure().ServeRegistry(func(r azure.Registry) http.Handler { return registries.handler(azurePlane(r.Host)) })
	cloud.GCP().ServeRegistry(func(r gcp.Registry) http.Handler { return registries.handler(gcpPlane(r.Host)) })
	cloud.GCP().ServeStorage(p.storage.HTTPHandler())
	return p, nil
}

// put puts a tenant's files into each bucket of the tenant. The name of such a bucket begins with
// the tenant's name and a dash.
func (p *planes) put(tenant string, files fs.FS) error {
	for _, bucket := range p.buckets {
		if !strings.HasPrefix(bucket, tenant+"-") {
			continue
		}
		if err := p.fill(bucket, files); err != nil {
			return err
		}
	}
	return nil
}

// fill puts files into a bucket.
func (p *planes) fill(bucket string, files fs.FS) error {
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		p.storage.CreateObject(fakestorage.Object{
			ObjectAttrs: fakestorage.ObjectAttrs{BucketName: bucket, Name: name}, Content: content,
		})
		return nil
	})
	if err != nil {
		return fmt.Errorf("fill bucket %s: %w", bucket, err)
	}
	return nil
}

// push puts an artifact directly into the data planes of Azure's registries, without the cloud's
// checks, because the demonstration has no publisher at Azure.
func (p *planes) push(ctx context.Context, push Push) error {
	for _, host := range p.azure {
		repository, err := oci.ParseURL("oci://" + host + "/" + push.Repository)
		if err != nil {
			return err
		}
		if err := p.pushInto(ctx, azurePlane(host), repository, push.Tag, push.Path); err != nil {
			return err
		}
	}
	return nil
}

// pushInto puts the files of a folder directly into the data plane of a registry, without the
// cloud's checks.
func (p *planes) pushInto(ctx context.Context, plane string, repository oci.Repository, tag, folder string) error {
	options := oci.Options{Transport: inProcess{p.registries.handler(plane)}}
	if _, err := oci.Push(ctx, repository, tag, oci.Artifact{Path: folder}, options); err != nil {
		return fmt.Errorf("put %s:%s behind the cloud's checks: %w", repository, tag, err)
	}
	return nil
}

// These functions return the names of registries' data planes, see planeOf.
func awsPlane(account, region string) string { return "aws " + account + " " + region }
func azurePlane(host string) string          { return "azure " + host }
func gcpPlane(host string) string            { return "gcp " + host }

// planeOf returns the name of the data plane for a repository's registry. It returns false if no
// cloud has a registry of this host.
func planeOf(repository oci.Repository) (string, bool) {
	image := repository.Image()
	if r, err := endpoint.ParseECR(image); err == nil && !r.Public {
		return awsPlane(r.Account, r.Region), true
	}
	if r, err := endpoint.ParseACR(image); err == nil {
		return azurePlane(r.Host), true
	}
	if r, err := endpoint.ParseGAR(image); err == nil {
		return gcpPlane(r.Host), true
	}
	return "", false
}

// inProcess is a RoundTripper that calls a handler directly, without a connection.
type inProcess struct{ handler http.Handler }

// RoundTrip implements http.RoundTripper.
func (t inProcess) RoundTrip(req *http.Request) (*http.Response, error) {
	served := req.Clone(req.Context())
	if served.Body == nil {
		served.Body = http.NoBody
	}
	served.RequestURI, served.Host = req.URL.RequestURI(), req.URL.Host
	answer := &answer{header: http.Header{}, status: http.StatusOK}
	t.handler.ServeHTTP(answer, served)
	return &http.Response{
		Status: http.StatusText(answer.status), StatusCode: answer.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: answer.header, Body: io.NopCloser(&answer.body), ContentLength: int64(answer.body.Len()), Request: req,
	}, nil
}

// answer records a handler's response. It implements http.ResponseWriter.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(status int)      { a.status = status }
func (a *answer) Write(p []byte) (int, error) { return a.body.Write(p) }

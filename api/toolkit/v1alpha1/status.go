package v1alpha1

import "github.com/lanyard-dev/lanyard/api/meta"

// GetStatus is the part of the object's own status that all kinds have.
func (o *Bucket) GetStatus() *meta.Status { return &o.Status.Status }

// GetStatus is the part of the object's own status that all kinds have.
func (o *ImageRepository) GetStatus() *meta.Status { return &o.Status.Status }

// GetStatus is the part of the object's own status that all kinds have.
func (o *OCIRepository) GetStatus() *meta.Status { return &o.Status.Status }

// GetFetchStatus is the part of the object's own status that all kinds have that fetch.
func (o *Bucket) GetFetchStatus() *meta.FetchStatus { return &o.Status.FetchStatus }

// GetFetchStatus is the part of the object's own status that all kinds have that fetch.
func (o *ImageRepository) GetFetchStatus() *meta.FetchStatus { return &o.Status.FetchStatus }

// GetFetchStatus is the part of the object's own status that all kinds have that fetch.
func (o *OCIRepository) GetFetchStatus() *meta.FetchStatus { return &o.Status.FetchStatus }

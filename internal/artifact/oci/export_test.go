package oci

import "cmp"

// MaxManifestBytes bounds a manifest.
const MaxManifestBytes = maxManifestBytes

// TagLimits bound a list of tags.
type TagLimits = tagLimits

// Limit lowers the client's limits for a list of tags. A limit of zero changes nothing.
func (c *Client) Limit(lower TagLimits) *Client {
	c.maxTags = tagLimits{
		Tags: cmp.Or(lower.Tags, c.maxTags.Tags), Pages: cmp.Or(lower.Pages, c.maxTags.Pages), Bytes: cmp.Or(lower.Bytes, c.maxTags.Bytes),
	}
	return c
}

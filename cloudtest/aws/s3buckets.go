package aws

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/xml"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/lanyard-dev/lanyard/cloudtest/service"
)

// maxBuckets is the maximum and the default size of a page of buckets. Source: Amazon S3 API
// Reference, "ListBuckets".
const maxBuckets = 10_000

// s3Time is S3's format of a time.
const s3Time = "2006-01-02T15:04:05.000Z"

// bucketList is the answer of ListBuckets. Source: Amazon S3 API Reference, "ListBuckets",
// "Response Syntax".
type bucketList struct {
	XMLName           xml.Name                       `xml:"http://s3.amazonaws.com/doc/2006-03-01/ ListAllMyBucketsResult"`
	Owner             string                         `xml:"Owner>ID"`
	Buckets           struct{ Bucket []bucketEntry } // an XML element even if empty
	ContinuationToken string                         `xml:",omitempty"`
	Prefix            string                         `xml:",omitempty"`
}

type bucketEntry struct {
	Name         string
	CreationDate string
	BucketRegion string `xml:",omitempty"`
}

// authorizeAccount checks an action that has no resource. A policy must allow the action on all
// buckets. Source: Service Authorization Reference, "Actions, resources, and condition keys for
// Amazon S3".
func (c *Cloud) authorizeAccount(s *s3Call, action string) *service.Refusal {
	v := c.authorize(s.who, ask{
		action: action, resource: "arn:" + s.ep.partition + ":s3:::*", owner: s.who.account, context: requestContext(s.ep, s.Now),
	})
	if v.allowed {
		return nil
	}
	return service.Refuse(http.StatusForbidden, "AccessDenied", notAuthorized(s.who, action, "", v)).Because(v.reason)
}

// bucketPage has the parameters of one page of buckets.
type bucketPage struct {
	prefix, region, after string
	size                  int
}

// readBucketPage reads the parameters of ListBuckets at an endpoint.
func readBucketPage(query url.Values, ep endpoint) (bucketPage, *service.Refusal) {
	page := bucketPage{prefix: query.Get("prefix"), region: query.Get("bucket-region"), size: maxBuckets}
	invalid := func(name, message string) (bucketPage, *service.Refusal) {
		return bucketPage{}, service.Refuse(http.StatusBadRequest, "InvalidArgument", message).With(elements("ArgumentName", name))
	}
	if query.Has("max-buckets") {
		size, err := strconv.Atoi(query.Get("max-buckets"))
		if err != nil || size < 1 || size > maxBuckets {
			return invalid("max-buckets", "Argument max-buckets must be an integer between 1 and 10000")
		}
		page.size = size
	}
	if query.Has("continuation-token") {
		after, err := base64.URLEncoding.DecodeString(query.Get("continuation-token"))
		if err != nil || !isBucketName(string(after)) {
			return invalid("continuation-token", "The continuation token provided is incorrect")
		}
		page.after = string(after)
	}
	if page.region != "" && page.region != ep.region {
		return invalid("bucket-region", "Argument bucket-region must be the endpoint's region")
	}
	return page, nil
}

// listBuckets answers with the buckets of the caller's account in all regions, sorted by name.
func (c *Cloud) listBuckets(s *s3Call) (service.Answer, *service.Refusal) {
	query := s.URL.Query()
	page, refusal := readBucketPage(query, s.ep)
	if refusal != nil {
		return nil, refusal
	}
	var found []*bucket
	c.mu.RLock()
	for name, b := range c.buckets {
		if b.account == s.who.account && name > page.after &&
			strings.HasPrefix(name, page.prefix) && (page.region == "" || b.region == page.region) {
			found = append(found, b)
		}
	}
	c.mu.RUnlock()
	slices.SortFunc(found, func(a, b *bucket) int { return cmp.Compare(a.name, b.name) })

	list := bucketList{Owner: canonicalID(s.who.account), Prefix: page.prefix}
	if len(found) > page.size {
		found = found[:page.size]
		list.ContinuationToken = base64.URLEncoding.EncodeToString([]byte(found[page.size-1].name))
	}
	// S3 adds the buckets' regions only if the request has a parameter of ListBuckets.
	regions := slices.ContainsFunc(s.params, query.Has)
	for _, b := range found {
		entry := bucketEntry{Name: b.name, CreationDate: b.created.UTC().Format(s3Time)}
		if regions {
			entry.BucketRegion = b.region
		}
		list.Buckets.Bucket = append(list.Buckets.Bucket, entry)
	}
	return writeRestXML(http.StatusOK, list), nil
}

// canonicalID returns an account's canonical user ID, 64 hexadecimal digits. S3 identifies owners
// by this ID.
func canonicalID(account string) string {
	sum := sha256.Sum256([]byte("canonical user of " + account))
	return hex.EncodeToString(sum[:])
}

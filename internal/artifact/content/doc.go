// Package content downloads the artifacts that statuses of sources name.
//
// A status is a stranger's text: whoever may write the status of a source chooses what is in it. So
// a [Client] downloads only from the artifact servers that an administrator has listed. The path of
// the URL must name the source whose status has the URL. Otherwise a tenant could name the artifact
// of another tenant. The digest must be that of the status. Redirects are not followed.
package content

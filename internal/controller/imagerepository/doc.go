// Package imagerepository implements the kind ImageRepository, which lists the tags of an image
// repository. The status has a summary of the tags: their number, a revision that changes with the
// tags, and the names of the last few. The whole list is not stored, so Lanyard cannot choose among
// the tags as Flux's ImagePolicy does. The package is built on package tenant.
package imagerepository

// Package imagerepository is the kind that lists the tags of an image repository. An
// ImageRepository names a repository. Its status holds a summary of the tags: their number, a
// revision that changes when they do, and the last few by name. The list itself is not kept, so
// nothing here can choose among the tags as Flux's ImagePolicy does. The frame is package tenant.
package imagerepository

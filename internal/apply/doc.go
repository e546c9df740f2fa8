// Package apply makes the objects of a cluster equal to manifests, with server-side apply.
//
// An [Applier] sends each request with the client of its caller, so the API server decides each
// object with the rights of the client's user. [Applier.Apply] creates and changes objects,
// [Applier.Prune] deletes objects that are no longer wanted, and [Applier.Check] finds the objects
// that somebody else has changed. [Applier.Diff] says what would change, and changes nothing.
//
// # Which objects belong to an owner
//
// Each applied object has two labels with the name and the namespace of its [Owner]. The owner also
// keeps an inventory: the list of its objects ([Entry]). The inventory alone decides nothing. An
// object is deleted only if it has the labels of the owner.
//
// The caller stores the inventory before the first object is written ([Options.BeforeWrite]). So a
// program that is killed at any time knows all objects that it has created.
//
// # How many requests
//
//   - A new object takes two: a dry run and the write. All objects of a stage are tried before the
//     first is written.
//   - An object that exists takes a GET and a dry run, and a write if it differs.
//   - At rest, all objects of one kind in one namespace take one LIST of their metadata. An object
//     with a resourceVersion that [Versions] has is as it was left.
package apply

package health

// FactsSchema is the version of Facts as they are written down. Fields may be
// added under one version, and an older plegd passes over those that it does
// not know; it grows when one is renamed, removed or changes meaning.
const FactsSchema = 1

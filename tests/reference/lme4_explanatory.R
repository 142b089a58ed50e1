# Rasch models with a random person effect by lme4, written to lme4_explanatory.json:
#   Rscript tests/reference/lme4_explanatory.R tests/reference/lme4_explanatory.json
suppressPackageStartupMessages(library(lme4))
set.seed(20)
n <- 500
n_items <- 12
x1 <- round(rnorm(n), 3)
x2 <- rbinom(n, 1, 0.4)
theta <- 0.6 * x1 - 0.5 * x2 + rnorm(n, sd = 0.8)
w1 <- round(rnorm(n_items), 3)
w2 <- rep(0:1, length.out = n_items)
easiness <- 0.3 - 0.7 * w1 + 0.5 * w2
y <- matrix(rbinom(n * n_items, 1, plogis(outer(theta, easiness, "+"))), n, n_items)

d <- data.frame(
  y = as.vector(y), person = factor(rep(seq_len(n), n_items)), item = factor(rep(seq_len(n_items), each = n)),
  x1 = x1, x2 = x2, w1 = rep(w1, each = n), w2 = rep(w2, each = n)
)
formulas <- list(
  latent_regression = y ~ 0 + item + x1 + x2 + (1 | person),
  lltm = y ~ w1 + w2 + (1 | person),
  both = y ~ w1 + w2 + x1 + x2 + (1 | person)
)
numbers <- function(v) paste0("[", paste(format(unname(v), digits = 8, trim = TRUE), collapse = ", "), "]")
fields <- character(0)
for (name in names(formulas)) {
  fit <- glmer(
    formulas[[name]], d, binomial, nAGQ = 25,
    control = glmerControl(optimizer = "bobyqa", optCtrl = list(rhoend = 1e-8, maxfun = 1e5))
  )
  stopifnot(length(fit@optinfo$conv$lme4) == 0)
  fields <- c(fields, sprintf(
    '"%s": {"coefficients": %s, "errors": %s, "sd": %s, "log_likelihood": %s}',
    name, numbers(fixef(fit)),
    numbers(sqrt(diag(as.matrix(vcov(fit))))), format(attr(VarCorr(fit)$person, "stddev")[[1]], digits = 8),
    format(as.numeric(logLik(fit)), digits = 9)
  ))
}
rows <- apply(y, 1, paste, collapse = "")
text <- c(
  sprintf('"lme4": "%s", "R": "%s"', packageVersion("lme4"), getRversion()),
  sprintf('"x1": %s, "x2": %s, "w1": %s, "w2": %s', numbers(x1), numbers(x2), numbers(w1), numbers(w2)),
  sprintf('"responses": ["%s"]', paste(rows, collapse = '", "')),
  fields
)
writeLines(paste0("{\n", paste(text, collapse = ",\n"), "\n}"), commandArgs(TRUE)[1])
